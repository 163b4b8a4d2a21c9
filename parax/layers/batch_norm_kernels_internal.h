#pragma once

#include <cstddef>
#include <cstdint>

#include "parax/base/isa.h"

// Batch normalisation over rows of channels, for channels-last and channel-blocked activations.
namespace parax {

// Activations as panels: `rows` rows of `width` channels each, dense. Channels last: one panel an
// image, all channels wide. Blocked (nChw16c): one panel an image and channel block.
struct NormShape {
  int64_t images = 0, blocks = 1, rows = 0, width = 0;
  int64_t channels = 0;  // real ones; blocks * width with padding lanes
  int64_t padded() const { return blocks * width; }
  double values() const { return static_cast<double>(images * rows); }  // a channel
};

// Adds to (count, mean, m2), a channel each, what images [begin, end) say: number of values, mean
// and sum of squared deviations from it. A block of rows is read from memory once and gone over
// twice in cache (its mean, then its deviations: no cancellation, however large the mean); blocks
// are joined in double (Chan, Golub, LeVeque 1979). `exact`, `partial`, `block_mean`: scratch. The
// order of additions is fixed, so every instruction set gives the same bits.
void NormMoments(Isa isa, const NormShape& shape, const float* x, int64_t begin, int64_t end,
                 double* count, double* mean, double* m2, double* exact, float* partial,
                 float* block_mean);
// y = (x - mean) * scale + bias, max with 0 when `relu`. Not x * scale + shift: that cancels where
// the mean is large against the deviation.
void NormApply(Isa isa, const NormShape& shape, const float* x, const float* mean,
               const float* scale, const float* bias, bool relu, int64_t begin, int64_t end,
               float* y);

// What backward needs of forward. With `relu`, dy counts where the output, computed anew, is above
// zero: cheaper than reading it.
struct NormForward {
  const float* x;
  const float* mean;   // padded, as are scale and bias
  const float* scale;  // weight / sqrt(variance + epsilon)
  const float* bias;
  bool relu;
};

// Sums of dy and of dy * (x - mean) into sum_dy and sum_dyx.
void NormGradientSums(Isa isa, const NormShape& shape, const NormForward& forward, const float* dy,
                      int64_t begin, int64_t end, double* sum_dy, double* sum_dyx, float* partial,
                      float* partial_x);
// dx = dy * scale + (x - mean) * slope + shift, a channel at a time.
void NormInputGradient(Isa isa, const NormShape& shape, const NormForward& forward, const float* dy,
                       const float* slope, const float* shift, int64_t begin, int64_t end,
                       float* dx);

}  // namespace parax
