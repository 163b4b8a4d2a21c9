#pragma once

#include <cstdint>
#include <vector>

#include "parax/data/image.h"

namespace parax {

enum class Interpolation : uint8_t { kBilinear, kBicubic };

// `box` of an image is resized to width x height, and a window of the result is taken. Columns and
// rows of the window outside the result are zero (padding). Coordinates are the image's own pixels;
// pixels outside the box count as not there, as if the image had been cropped before.
struct ResizeJob {
  double x0 = 0, y0 = 0, x1 = 0, y1 = 0;  // box
  int width = 0, height = 0;              // the box's size after resizing
  int left = 0, top = 0;                  // the window's corner in the result; may be negative
  int window_width = 0, window_height = 0;
  bool flip = false;  // mirror the window left to right
  Interpolation interpolation = Interpolation::kBilinear;
};

// The image's pixels that the job reads, at most, as a hint for Decoder (reduction not set).
DecodeHint NeededRegion(const ResizeJob& job, int image_width, int image_height);

// Antialiased resampling as in PIL and torchvision (Pillow, src/libImaging/Resample.c): two passes,
// the filter's support widened when reducing, rounding to 8 bits after each. The coefficients have
// 16 bits (PIL: 32), so results may differ by 1. Every instruction set gives the same bits.
// One per thread: keeps coefficients and scratch.
class Resizer {
 public:
  // RGB bytes, window_height x window_width x 3.
  void Run(const Image& image, const ResizeJob& job, uint8_t* out);
  // The same as float: byte * scale[channel] + shift[channel].
  void Run(const Image& image, const ResizeJob& job, const float scale[3], const float shift[3],
           float* out);

  // How one axis of the window is made of the image's pixels: output i is the sum over k of
  // weights[i * count + k] * source[first[i] + k], in fixed point.
  struct Taps {
    int count = 0;           // even
    int shift = 0;           // weights are multiplied by 1 << shift
    int begin = 0, end = 0;  // source pixels with a weight
    std::vector<int> first;
    std::vector<int16_t> weights;
    std::vector<double> exact;  // scratch
  };

 private:
  void Horizontal(const Image& image, const ResizeJob& job);
  void Line(int y, int bytes, uint8_t* out) const;

  Taps columns_, rows_;
  ptrdiff_t stride_ = 0;         // of narrow_
  std::vector<uint8_t> narrow_;  // rows_.begin .. end after the horizontal pass
  std::vector<uint8_t> line_;
};

// byte * scale[channel] + shift[channel]; n bytes of RGB.
void Normalize(const uint8_t* bytes, int64_t n, const float scale[3], const float shift[3],
               float* out);

}  // namespace parax
