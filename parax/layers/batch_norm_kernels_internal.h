#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "parax/base/isa.h"

// Batch normalisation over rows of channels, for channels-last and channel-blocked activations.
namespace parax {

// Activations as panels: `rows` rows of `width` channels each, dense. Channels last: one panel, a
// row for each pixel of all images. Blocked (nChw16c): one panel an image and channel block.
struct NormShape {
  int64_t images = 0, blocks = 1, rows = 0, width = 0;  // rows of an image
  int64_t channels = 0;  // real ones; blocks * width with padding lanes
  int64_t padded() const { return blocks * width; }
  double values() const { return static_cast<double>(images * rows); }  // a channel
};

// Where the output of a ReLU was above zero (or NaN), a bit a channel; rows begin at multiples of
// this many channels.
inline constexpr int kNormGroup = 16;
constexpr int64_t NormBitBytes(int64_t width) {
  return (width + kNormGroup - 1) / kNormGroup * (kNormGroup / 8);
}

// All that one pass reads and writes; unused pointers are null. Coefficients have a value a channel
// and zeros up to the next multiple of kNormGroup.
struct NormRows {
  int64_t rows = 0, width = 0, stride = 0;  // stride: floats from row to row
  bool relu = false;
  const float *mean = nullptr, *scale = nullptr, *bias = nullptr;
  const float *slope = nullptr, *shift = nullptr;
  const float *x = nullptr, *residual = nullptr, *dy = nullptr;
  uint8_t* bits = nullptr;  // [rows][NormBitBytes(width)]
  float* out = nullptr;     // may be x, residual or dy
};

// The passes over a block of rows, for one instruction set.
struct NormLoops {
  // Of each channel: shift, sum of (x - shift) and of (x - shift)^2. The shift is the mean of the
  // block's first 8 rows, so that the variance never cancels: if the block's mean is d away from
  // it, those rows alone make the sum of squared deviations 8 d^2 (1 - 8 / rows), against the
  // rows * d^2 that are taken off.
  void (*moments)(const NormRows& rows, float* shift, float* sum, float* squares);
  // out = (x - mean) * scale + bias (+ residual), max with 0 when `relu`; writes `bits` if there is
  // a residual. Not x * scale + shift: that cancels where the mean is large against the deviation.
  void (*apply)(const NormRows& rows);
  // Sums of g and of g * (x - mean). g is dy, with `relu` only where the output was above zero:
  // as `bits` say, else computed anew from x. Writes g to `out` if there is one.
  void (*sums)(const NormRows& rows, float* sum, float* dot);
  // out = g * scale + ((x - mean) * slope + shift)
  void (*input_gradient)(const NormRows& rows);
};
extern const NormLoops kNormSse2, kNormAvx2, kNormAvx512;
const NormLoops& NormLoopsFor(Isa isa);

// Moments of channels over any number of rows: joined from blocks in double (Chan, Golub, LeVeque
// 1979), in the order in which they are added.
struct NormMoments {
  double* mean = nullptr;  // a channel
  double* m2 = nullptr;    // sum of squared deviations from the mean
};
// Most rows whose sums are kept in float.
inline constexpr int64_t kNormBlockRows = 256;
// Adds `rows` (at most kNormBlockRows) rows of `channels` floats, `stride` floats apart, to
// `moments`, of `count` values so far. `scratch`: 3 * channels floats.
void AddMoments(Isa isa, const float* x, int64_t stride, int64_t rows, int64_t channels,
                int64_t count, NormMoments moments, float* scratch);

struct NormBlock {
  int64_t at = 0;  // offset of its first element
  int64_t rows = 0;
  int64_t channel = 0;  // the first
  int64_t row = 0;      // the first, of all panels'
  int64_t before = 0;   // values of its channels in the blocks that came before it
};

// body(NormBlock) for all blocks of at most `most` rows of images [begin, end), first to last or
// last to first.
template <typename Body>
void ForNormBlocks(const NormShape& s, int64_t begin, int64_t end, int64_t most, bool backwards,
                   const Body& body) {
  const bool one_panel = s.blocks == 1;
  const int64_t rows = one_panel ? (end - begin) * s.rows : s.rows;
  const int64_t panels = one_panel ? 1 : (end - begin) * s.blocks;
  const int64_t pieces = (rows + most - 1) / most;
  for (int64_t i = 0; i < panels * pieces; ++i) {
    const int64_t k = backwards ? panels * pieces - 1 - i : i;
    const int64_t panel = k / pieces, row = k % pieces * most;
    const int64_t global = (begin * s.blocks + panel) * s.rows + row;
    const int64_t count = std::min(most, rows - row), before = panel / s.blocks * s.rows + row;
    body(NormBlock{global * s.width, count, panel % s.blocks * s.width, global,
                   backwards ? (end - begin) * s.rows - before - count : before});
  }
}

}  // namespace parax
