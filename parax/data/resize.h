#pragma once

#include <cstdint>
#include <vector>

#include "parax/data/image.h"

namespace parax {

enum class Interpolation : uint8_t { kBilinear, kBicubic };

// `box` of an image is resized to width x height, and a window of the result is taken. Columns and
// rows of the window outside the result are zero (padding). Coordinates are the image's own pixels.
struct ResizeJob {
  double x0 = 0, y0 = 0, x1 = 0,
         y1 = 0;              // box; pixels outside it count as not there, as if cropped
  int width = 0, height = 0;  // the box's size after resizing
  int left = 0, top = 0;      // the window's corner in the result; may be negative
  int window_width = 0, window_height = 0;
  bool flip = false;  // mirror the window left to right
  Interpolation interpolation = Interpolation::kBilinear;
};

// PIL's antialiased resampling (Pillow, src/libImaging/Resample.c): two passes, the filter's
// support widened when reducing, rounded to 8 bits after each pass. The coefficients have 16 bits
// (PIL: 32), so results may differ from PIL's by 1. Every instruction set gives the same bits. One
// per thread: keeps coefficients and scratch.
class Resizer {
 public:
  Resizer();
  // RGB bytes, window_height x window_width x 3.
  void Run(const Image& image, const ResizeJob& job, uint8_t* out);
  // The same as float: byte * scale[channel] + shift[channel].
  void Run(const Image& image, const ResizeJob& job, const float scale[3], const float shift[3],
           float* out);

  struct Taps {                    // how one axis of the window is made of the image's pixels
    int count = 0;                 // coefficients an output, even; unused ones are zero
    int shift = 0;                 // coefficients are fixed-point, << shift
    std::vector<int> first;        // per output: first source pixel; -1: padding
    std::vector<int16_t> weights;  // per output: `count` of them
    int begin = 0, end = 0;        // source pixels used over all outputs
  };

 private:
  template <typename Finish>
  void Pass(const Image& image, const ResizeJob& job, Finish&& finish);

  Taps horizontal_, vertical_;
  std::vector<uint8_t> columns_;  // after the horizontal pass
  std::vector<uint8_t> line_;
};

}  // namespace parax
