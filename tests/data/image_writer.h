#pragma once
// Makes encoded images for tests, with the libraries' own writers.

// clang-format off
#include <cstdio>
#include <jpeglib.h>
#include <png.h>
// clang-format on

#include <cmath>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "parax/data/image.h"

namespace parax {

inline std::span<const std::byte> Bytes(const std::string& file) {
  return std::as_bytes(std::span(file));
}

// A picture with smooth areas and an edge, as photographs have.
inline Image MakePicture(int width, int height) {
  Image image;
  image.Resize(width, height);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      uint8_t* p = image.row(y) + 3 * x;
      const double u = x / 17.0, v = y / 23.0;
      p[0] = static_cast<uint8_t>(128 + 100 * std::sin(u + v));
      p[1] = static_cast<uint8_t>(128 + 90 * std::cos(u - 2 * v));
      p[2] = (x - width / 2) * (x - width / 2) + (y - height / 2) * (y - height / 2) <
                     width * height / 16
                 ? 220
                 : 40;
    }
  }
  return image;
}

struct JpegOptions {
  int quality = 90;
  int h = 2, v = 2;  // luma sampling factors (chroma 1 x 1)
  bool progressive = false;
  J_COLOR_SPACE in = JCS_RGB;  // JCS_GRAYSCALE, JCS_CMYK: samples as they are stored
  J_COLOR_SPACE stored = JCS_YCbCr;
  int restart = 0;  // restart interval in MCU rows
};

inline std::string WriteJpeg(const uint8_t* samples, int width, int height,
                             const JpegOptions& options = {}) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &buffer, &size);
  jpeg.image_width = static_cast<JDIMENSION>(width);
  jpeg.image_height = static_cast<JDIMENSION>(height);
  jpeg.in_color_space = options.in;
  jpeg.input_components = options.in == JCS_GRAYSCALE ? 1 : options.in == JCS_CMYK ? 4 : 3;
  jpeg_set_defaults(&jpeg);
  jpeg_set_colorspace(&jpeg, options.stored);
  jpeg_set_quality(&jpeg, options.quality, TRUE);
  jpeg.comp_info[0].h_samp_factor = options.h;
  jpeg.comp_info[0].v_samp_factor = options.v;
  if (options.stored == JCS_YCCK) {
    jpeg.comp_info[3].h_samp_factor = options.h;
    jpeg.comp_info[3].v_samp_factor = options.v;
  }
  jpeg.restart_in_rows = options.restart;
  if (options.progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  for (int y = 0; y < height; ++y) {
    JSAMPROW row = const_cast<JSAMPROW>(samples + ptrdiff_t{jpeg.input_components} * width * y);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string file(reinterpret_cast<char*>(buffer), size);
  jpeg_destroy_compress(&jpeg);
  std::free(buffer);
  return file;
}

inline std::string WriteJpeg(const Image& image, const JpegOptions& options = {}) {
  return WriteJpeg(image.pixels.data(), image.width, image.height, options);
}

struct PngOptions {
  int type = PNG_COLOR_TYPE_RGB;
  int bits = 8;
  bool interlaced = false;
  std::vector<png_color> palette = {};
  std::vector<png_byte> transparency = {};  // of palette entries
};

// `samples` are rows as PNG stores them (16 bits: big-endian; fewer than 8: packed).
inline std::string WritePng(const uint8_t* samples, size_t row_bytes, int width, int height,
                            const PngOptions& options = {}) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  std::string file;
  png_set_write_fn(
      png, &file,
      [](png_structp p, png_bytep data, size_t n) {
        static_cast<std::string*>(png_get_io_ptr(p))->append(reinterpret_cast<char*>(data), n);
      },
      nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height),
               options.bits, options.type,
               options.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!options.palette.empty()) {
    png_set_PLTE(png, info, options.palette.data(), static_cast<int>(options.palette.size()));
  }
  if (!options.transparency.empty()) {
    png_set_tRNS(png, info, options.transparency.data(),
                 static_cast<int>(options.transparency.size()), nullptr);
  }
  png_write_info(png, info);
  std::vector<png_bytep> rows;
  for (int y = 0; y < height; ++y) {
    rows.push_back(const_cast<png_bytep>(samples) + row_bytes * static_cast<size_t>(y));
  }
  png_write_image(png, rows.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return file;
}

inline std::string WritePng(const Image& image, const PngOptions& options = {}) {
  return WritePng(image.pixels.data(), size_t{3} * image.width, image.width, image.height, options);
}

inline int MaxDifference(const uint8_t* a, const uint8_t* b, int64_t n) {
  int largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

}  // namespace parax
