#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace parax {

enum class ImageType : uint8_t { kUnknown, kJpeg, kPng };
ImageType TypeOf(std::span<const std::byte> file);  // by content, never by name

// More pixels than this are refused: a small file can claim gigabytes.
inline constexpr int64_t kMaxPixels = 200'000'000;

struct ImageInfo {
  ImageType type = ImageType::kUnknown;
  int width = 0;
  int height = 0;
  std::string error;  // empty when the header is sound; else why not, in one line
};

// RGB, interleaved, 8 bits a channel. The pixels may be a part of the file's image, and reduced:
// pixel (x, y) covers [left + x, left + x + 1) * 8 / eighths of the file's columns, rows alike.
struct Image {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> pixels;  // at least width * height * 3 bytes; kept and reused, never shrunk
  int full_width = 0;           // of the file's image
  int full_height = 0;
  int eighths = 8;  // 8: full size; 4, 2, 1: reduced by the JPEG decoder
  int left = 0;
  int top = 0;

  const uint8_t* row(int y) const { return pixels.data() + size_t{3} * width * y; }
  uint8_t* row(int y) { return pixels.data() + size_t{3} * width * y; }
  // A whole image of that size, content undefined; leaves room behind it for vector loads.
  void Resize(int new_width, int new_height);
};

// What the caller will use of the image. The decoder gives at least that; default: everything.
struct DecodeHint {
  // The region wanted, in the file's pixels; width 0: all. Its pixels are those of a full decode.
  int left = 0, top = 0, width = 0, height = 0;
  // By how much a JPEG may be reduced while decoding (cheap): 1 (not at all), 2, 4 or 8.
  int max_reduction = 1;
};

// Decodes JPEG and PNG; one per thread, keeps its buffers. Never throws (but
// for lack of memory); after an error it is ready for the next file.
// Grayscale, palette, 16-bit (upper byte), CMYK and YCCK (Adobe's inverted) become RGB, alpha is
// dropped, as PIL's convert("RGB") does (PIL clips 16-bit gray instead, which makes it white).
// EXIF orientation is not applied: torchvision's loader does not either, and weights trained there
// expect it so. Truncated and corrupt data is an error, not a gray area.
class Decoder {
 public:
  explicit Decoder(int64_t max_pixels = kMaxPixels);
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Reads the header; `file` must stay valid until Read. The error is also in the info.
  const ImageInfo& Open(std::span<const std::byte> file);
  // Decodes what Open opened (once). Empty, or why it failed in one line.
  std::string Read(const DecodeHint& hint, Image& out);
  // Both.
  std::string Decode(std::span<const std::byte> file, const DecodeHint& hint, Image& out);
  // Reads all data at the least cost, to find truncated and corrupt files. Empty when sound.
  std::string Verify(std::span<const std::byte> file);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

ImageInfo ProbeImage(std::span<const std::byte> file);  // Decoder::Open with a decoder of its own

}  // namespace parax
