// clang-format off
#include <cstdio>  // jpeglib.h needs FILE and size_t
#include <jpeglib.h>
// clang-format on

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "parax/base/error.h"
#include "parax/base/file.h"
#include "parax/cli/report.h"
#include "parax/data/transform.h"

namespace parax {
namespace {

constexpr int kSide = 112;
constexpr int kQuality = 80;

std::string Base64(const unsigned char* bytes, size_t n) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < n; i += 3) {
    const size_t left = std::min<size_t>(3, n - i);
    uint32_t group = uint32_t{bytes[i]} << 16;
    if (left > 1) group |= uint32_t{bytes[i + 1]} << 8;
    if (left > 2) group |= bytes[i + 2];
    text += kDigits[group >> 18];
    text += kDigits[(group >> 12) & 63];
    text += left > 1 ? kDigits[(group >> 6) & 63] : '=';
    text += left > 2 ? kDigits[group & 63] : '=';
  }
  return text;
}

// Our own pixels at a fixed size: libjpeg's default error handler (which exits) has no cause to
// run.
std::string EncodeJpeg(std::vector<unsigned char>& pixels) {
  jpeg_compress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &out, &size);
  jpeg.image_width = jpeg.image_height = kSide;
  jpeg.input_components = 3;
  jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, kQuality, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    JSAMPROW row = pixels.data() + static_cast<size_t>(jpeg.next_scanline) * kSide * 3;
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string text = Base64(out, size);
  jpeg_destroy_compress(&jpeg);
  std::free(out);
  return text;
}

}  // namespace

std::string ThumbnailUri(const std::string& path) {
  TransformOptions options;
  options.image_size = options.eval_resize = kSide;
  options.normalization = ParseNormalization("none");
  Transform transform(options);
  Decoder decoder;
  RandomStream unused(0, RandomUse::kAugment);
  std::vector<float> floats(static_cast<size_t>(transform.output_floats()));
  std::string file;
  try {
    file = ReadFile(path);
  } catch (const Error&) {
    return "";  // moved away meanwhile: the report does without the picture
  }
  if (!transform.Run(std::as_bytes(std::span(file)), unused, decoder, floats.data()).empty()) {
    return "";
  }
  std::vector<unsigned char> pixels(floats.size());
  std::transform(floats.begin(), floats.end(), pixels.begin(), [](float v) {
    return static_cast<unsigned char>(std::lround(std::clamp(v, 0.0f, 1.0f) * 255));
  });
  return "data:image/jpeg;base64," + EncodeJpeg(pixels);
}

}  // namespace parax
