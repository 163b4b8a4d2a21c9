#pragma once
// The two codecs behind Decoder. Both libraries report errors through longjmp, so every function
// between setjmp and the library holds only trivial locals; buffers are members.

// clang-format off
#include <csetjmp>
#include <cstdio>  // jpeglib.h uses FILE without including it
#include <jpeglib.h>
#include <png.h>
// clang-format on

#include "parax/data/image.h"

namespace parax {

class JpegReader {
 public:
  JpegReader() = default;
  ~JpegReader();
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  std::string Open(std::span<const std::byte> file, ImageInfo& info);
  std::string Read(const DecodeHint& hint, Image& out);

 private:
  static void OnError(j_common_ptr info);
  static void OnMessage(j_common_ptr info, int level);
  static void OnProgress(j_common_ptr info);
  void Create();
  void Start(const DecodeHint& hint, Image& out);
  void ReadRows(Image& out);

  jpeg_decompress_struct jpeg_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf jump_;
  char message_[JMSG_LENGTH_MAX] = "";
  int rows_ = 0;
  std::vector<uint8_t> line_;  // one CMYK line
};

class PngReader {
 public:
  PngReader() = default;
  ~PngReader() { Close(); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  std::string Open(std::span<const std::byte> file, ImageInfo& info);
  std::string Read(Image& out);

 private:
  static void OnError(png_structp png, png_const_charp message);
  static void OnRead(png_structp png, png_bytep data, size_t size);
  void Close();

  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::span<const std::byte> rest_;
  std::jmp_buf jump_;
  char message_[128] = "";
  std::vector<png_bytep> rows_;
};

}  // namespace parax
