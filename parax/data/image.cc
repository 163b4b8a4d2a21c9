#include "parax/data/image.h"

#include <fmt/core.h>

#include <cstring>

#include "parax/data/codec_internal.h"

namespace parax {
namespace {

bool StartsWith(std::span<const std::byte> file, std::string_view magic, size_t at = 0) {
  return file.size() >= at + magic.size() &&
         std::memcmp(file.data() + at, magic.data(), magic.size()) == 0;
}

std::string WhyUnknown(std::span<const std::byte> file) {
  if (file.empty()) return "empty file";
  const char* kind = nullptr;
  if (StartsWith(file, "GIF8")) kind = "GIF";
  if (StartsWith(file, "RIFF") && StartsWith(file, "WEBP", 8)) kind = "WebP";
  if (StartsWith(file, "BM")) kind = "BMP";
  if (StartsWith(file, "II*") || StartsWith(file, "MM")) kind = "TIFF";
  if (StartsWith(file, "ftyp", 4)) kind = "HEIF or AVIF";
  if (kind != nullptr) return fmt::format("content looks like {}, but JPEG or PNG is needed", kind);
  return "content is neither JPEG nor PNG";
}

}  // namespace

ImageType TypeOf(std::span<const std::byte> file) {
  if (StartsWith(file, "\xff\xd8\xff")) return ImageType::kJpeg;
  if (StartsWith(file, "\x89PNG\r\n\x1a\n")) return ImageType::kPng;
  return ImageType::kUnknown;
}

void Image::Resize(int new_width, int new_height) {
  constexpr size_t kRoomBehind = 64;
  const size_t needed = size_t{3} * new_width * new_height + kRoomBehind;
  if (pixels.size() < needed) pixels.resize(needed);
  width = full_width = new_width;
  height = full_height = new_height;
  eighths = 8;
  left = top = 0;
}

struct Decoder::State {
  int64_t max_pixels;
  JpegReader jpeg;
  PngReader png;
  ImageInfo info;
  bool open = false;
  Image scratch;  // for Verify
};

Decoder::Decoder(int64_t max_pixels) : state_(std::make_unique<State>()) {
  state_->max_pixels = max_pixels;
}
Decoder::~Decoder() = default;

const ImageInfo& Decoder::Open(std::span<const std::byte> file) {
  ImageInfo& info = state_->info;
  info = {};
  info.type = TypeOf(file);
  if (info.type == ImageType::kUnknown) {
    info.error = WhyUnknown(file);
  } else {
    info.error = info.type == ImageType::kJpeg ? state_->jpeg.Open(file, info)
                                               : state_->png.Open(file, info);
  }
  if (info.error.empty() && int64_t{info.width} * info.height > state_->max_pixels) {
    info.error = fmt::format("{} x {} pixels, more than the {} million allowed", info.width,
                             info.height, state_->max_pixels / 1'000'000);
  }
  state_->open = info.error.empty();
  return info;
}

std::string Decoder::Read(const DecodeHint& hint, Image& out) {
  if (!state_->open) return state_->info.error.empty() ? "no file is open" : state_->info.error;
  state_->open = false;
  return state_->info.type == ImageType::kJpeg ? state_->jpeg.Read(hint, out)
                                               : state_->png.Read(out);
}

std::string Decoder::Decode(std::span<const std::byte> file, const DecodeHint& hint, Image& out) {
  Open(file);
  return Read(hint, out);
}

std::string Decoder::Verify(std::span<const std::byte> file) {
  return Decode(file, {.max_reduction = 8}, state_->scratch);
}

ImageInfo ProbeImage(std::span<const std::byte> file) {
  Decoder decoder;
  return decoder.Open(file);
}

}  // namespace parax
