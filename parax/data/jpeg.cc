#include <jerror.h>

#include <algorithm>
#include <string_view>

#include "parax/data/codec_internal.h"

namespace parax {
namespace {

// A progressive file may hold thousands of scans that each touch every block: a time bomb.
constexpr int kMaxScans = 500;
constexpr long kMaxMemory = 2L << 30;  // coefficients of a progressive image

// PIL's conversion (Convert.c, cmyk2rgb) of Adobe's inverted CMYK: `line` holds 255 - ink.
void CmykToRgb(const uint8_t* line, int width, uint8_t* rgb) {
  for (int x = 0; x < width; ++x, line += 4, rgb += 3) {
    const int black = line[3];
    for (int c = 0; c < 3; ++c) {
      const int product = (255 - line[c]) * black + 128;
      rgb[c] = static_cast<uint8_t>(std::max(0, black - ((product >> 8) + product) / 256));
    }
  }
}

}  // namespace

JpegReader::~JpegReader() { jpeg_destroy_decompress(&jpeg_); }

void JpegReader::OnError(j_common_ptr info) {
  auto* self = static_cast<JpegReader*>(info->client_data);
  info->err->format_message(info, self->message_);
  std::longjmp(self->jump_, 1);
}

void JpegReader::OnMessage(j_common_ptr info, int level) {
  if (level >= 0) return;  // trace
  // libjpeg would go on with gray. Other warnings (stray bytes before a marker) lose no pixels.
  const int code = info->err->msg_code;
  if (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE) {
    OnError(info);
  }
}

void JpegReader::OnProgress(j_common_ptr info) {
  auto* self = static_cast<JpegReader*>(info->client_data);
  if (self->jpeg_.input_scan_number > kMaxScans) ERREXIT(&self->jpeg_, JERR_BAD_PROGRESSION);
}

// A decompressor of its own for every file: libjpeg keeps tables from one file to the next, and a
// file that lacks some would be decoded with another's.
void JpegReader::Create() {
  jpeg_destroy_decompress(&jpeg_);
  jpeg_.err = jpeg_std_error(&errors_);
  errors_.error_exit = OnError;
  errors_.emit_message = OnMessage;
  jpeg_.client_data = this;
  jpeg_create_decompress(&jpeg_);
  jpeg_.mem->max_memory_to_use = kMaxMemory;
  progress_.progress_monitor = OnProgress;
  jpeg_.progress = &progress_;
}

std::string JpegReader::Open(std::span<const std::byte> file, ImageInfo& info) {
  if (setjmp(jump_) != 0) {
    jpeg_destroy_decompress(&jpeg_);
    return std::string("broken JPEG: ") + message_;
  }
  Create();
  jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  jpeg_read_header(&jpeg_, TRUE);
  info.width = static_cast<int>(jpeg_.image_width);
  info.height = static_cast<int>(jpeg_.image_height);
  // Whether a file counts as cut short must not hang on how much of it a crop needs. Within a scan
  // 0xff is escaped, so an end marker behind the header (with its thumbnail) is the image's own.
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  const size_t end = text.rfind("\xff\xd9");
  if (end == std::string_view::npos || end < file.size() - jpeg_.src->bytes_in_buffer) {
    return "broken JPEG: the file ends too early";
  }
  return {};
}

std::string JpegReader::Read(const DecodeHint& hint, Image& out) {
  if (setjmp(jump_) != 0) {
    jpeg_destroy_decompress(&jpeg_);
    return std::string("broken JPEG: ") + message_;
  }
  Start(hint, out);
  ReadRows(out);
  jpeg_abort_decompress(&jpeg_);  // leaves what lies below the region undecoded
  return {};
}

// Settles reduction and region, and allocates `out`.
void JpegReader::Start(const DecodeHint& hint, Image& out) {
  const bool cmyk = jpeg_.jpeg_color_space == JCS_CMYK || jpeg_.jpeg_color_space == JCS_YCCK;
  jpeg_.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  jpeg_.dct_method = JDCT_ISLOW;  // as PIL
  jpeg_.do_block_smoothing = FALSE;
  const int eighths = 8 / hint.max_reduction;
  jpeg_.scale_num = static_cast<unsigned>(eighths);
  jpeg_.scale_denom = 8;
  const int full_width = static_cast<int>(jpeg_.image_width);
  const int full_height = static_cast<int>(jpeg_.image_height);
  jpeg_start_decompress(&jpeg_);

  int left = 0, top = 0;
  int right = static_cast<int>(jpeg_.output_width), bottom = static_cast<int>(jpeg_.output_height);
  if (hint.width > 0) {
    // Chroma at the region's border is interpolated from its neighbours, so some more is decoded.
    constexpr int kMargin = 8;
    left = std::max(left, hint.left * eighths / 8 - kMargin);
    top = std::max(top, hint.top * eighths / 8 - kMargin);
    right = std::min(right, ((hint.left + hint.width) * eighths + 7) / 8 + kMargin);
    bottom = std::min(bottom, ((hint.top + hint.height) * eighths + 7) / 8 + kMargin);
  }
  if (left > 0 || right < static_cast<int>(jpeg_.output_width)) {
    JDIMENSION offset = static_cast<JDIMENSION>(left);
    JDIMENSION width = static_cast<JDIMENSION>(right - left);
    jpeg_crop_scanline(&jpeg_, &offset, &width);  // moves the left edge to a block's
    left = static_cast<int>(offset);
  }
  if (top > 0) jpeg_skip_scanlines(&jpeg_, static_cast<JDIMENSION>(top));
  rows_ = bottom - top;
  out.Resize(static_cast<int>(jpeg_.output_width), rows_);
  out.full_width = full_width;
  out.full_height = full_height;
  out.eighths = eighths;
  out.left = left;
  out.top = top;
  if (cmyk) line_.resize(size_t{4} * jpeg_.output_width);
}

void JpegReader::ReadRows(Image& out) {
  const bool cmyk = jpeg_.out_color_space == JCS_CMYK;
  for (int y = 0; y < rows_; ++y) {
    JSAMPROW row = cmyk ? line_.data() : out.row(y);
    jpeg_read_scanlines(&jpeg_, &row, 1);
    if (cmyk) CmykToRgb(line_.data(), out.width, out.row(y));
  }
}

}  // namespace parax
