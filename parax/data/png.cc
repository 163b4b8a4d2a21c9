#include <cstdio>
#include <cstring>

#include "parax/data/codec_internal.h"

namespace parax {

void PngReader::OnError(png_structp png, png_const_charp message) {
  auto* self = static_cast<PngReader*>(png_get_error_ptr(png));
  std::snprintf(self->message_, sizeof(self->message_), "%s", message);
  std::longjmp(self->jump_, 1);
}

void PngReader::OnRead(png_structp png, png_bytep data, size_t size) {
  auto* self = static_cast<PngReader*>(png_get_io_ptr(png));
  if (size > self->rest_.size()) png_error(png, "the file ends too early");
  std::memcpy(data, self->rest_.data(), size);
  self->rest_ = self->rest_.subspan(size);
}

void PngReader::Close() {
  if (png_ != nullptr) png_destroy_read_struct(&png_, &info_, nullptr);
  png_ = nullptr;
  info_ = nullptr;
}

std::string PngReader::Open(std::span<const std::byte> file, ImageInfo& info) {
  Close();
  rest_ = file;
  if (setjmp(jump_) != 0) {
    Close();
    return std::string("broken PNG: ") + message_;
  }
  png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, OnError,
                                [](png_structp, png_const_charp) {});
  if (png_ == nullptr) return "out of memory for PNG";
  info_ = png_create_info_struct(png_);
  if (info_ == nullptr) return "out of memory for PNG";
  png_set_read_fn(png_, this, OnRead);
  png_set_user_limits(png_, 0x7fffffff, 0x7fffffff);  // Decoder checks the area
  png_set_chunk_malloc_max(png_, 64 << 20);
  png_read_info(png_, info_);
  info.width = static_cast<int>(png_get_image_width(png_, info_));
  info.height = static_cast<int>(png_get_image_height(png_, info_));
  return {};
}

std::string PngReader::Read(Image& out) {
  if (setjmp(jump_) != 0) {
    Close();
    return std::string("broken PNG: ") + message_;
  }
  png_set_expand(png_);  // palette to RGB, 1, 2 and 4 bits to 8, transparency to alpha
  png_set_strip_16(png_);
  png_set_strip_alpha(png_);
  png_set_gray_to_rgb(png_);
  png_set_interlace_handling(png_);
  png_read_update_info(png_, info_);
  const int width = static_cast<int>(png_get_image_width(png_, info_));
  const int height = static_cast<int>(png_get_image_height(png_, info_));
  if (png_get_rowbytes(png_, info_) != size_t{3} * width) png_error(png_, "unsupported colours");
  out.Resize(width, height);
  rows_.resize(static_cast<size_t>(height));
  for (int y = 0; y < height; ++y) rows_[y] = out.row(y);
  png_read_image(png_, rows_.data());
  Close();
  return {};
}

}  // namespace parax
