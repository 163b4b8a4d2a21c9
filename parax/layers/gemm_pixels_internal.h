#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "parax/layers/gemm_internal.h"

namespace parax {

// Which pixels of a source tensor a tap of the kernel meets: grid point (h, w) of an image meets
// source pixel (h * step + down, w * step + right), or the border.
struct GemmTap {
  int64_t weights;  // its number in the weight tensor
  int64_t down, right;
};

// A grid of pixels that a product goes through, image by image, row by row.
struct GemmGrid {
  int64_t images = 0, height = 0, width = 0;
  // Source.
  int64_t step = 1, source_height = 0, source_width = 0, source_channels = 0;
  std::vector<GemmTap> taps;
  // Destination pixel of grid point (h, w): (h * out_step + out_down, w * out_step + out_right).
  int64_t out_step = 1, out_down = 0, out_right = 0;
  int64_t out_height = 0, out_width = 0, out_channels = 0;

  int64_t points() const { return images * height * width; }
  // Addresses of grid points [begin, end) in the source for a tap; `border` where it is outside.
  void Sources(const float* source, const GemmTap& tap, int64_t begin, int64_t end,
               const float* border, const float** addresses) const;
  void Destinations(float* out, int64_t begin, int64_t end, float** addresses) const;
};

// Output pixels, as forward and weight gradients go through them.
GemmGrid ForwardGrid(const GemmConv& conv);
// Input pixels, in stride x stride grids: of each, all points meet the same taps. Grids without
// taps have none: their gradient is zero.
std::vector<GemmGrid> InputGrids(const GemmConv& conv);

// Copies a multiple of 16 floats; the library's memcpy is slower for the short rows of a packed
// matrix.
inline void CopyColumns(const float* from, int64_t columns, float* to) {
  for (int64_t c = 0; c < columns; c += 16) std::memcpy(to + c, from + c, 16 * sizeof(float));
}

const GemmLoops* GemmLoopsHere();  // null: none for this CPU

}  // namespace parax
