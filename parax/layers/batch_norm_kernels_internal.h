#pragma once

#include <cstddef>
#include <cstdint>

#include "parax/layers/isa.h"

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

// Sums over images [begin, end) into sum[0, padded), as doubles of float partial sums over a few
// hundred rows; `partial`: padded floats of scratch. Per channel the order of additions is fixed,
// so every instruction set gives the same bits.
void NormSum(Isa isa, const NormShape& shape, const float* x, int64_t begin, int64_t end,
             double* sum, float* partial);
// Sums of (x - mean)^2: no cancellation, however large the mean.
void NormSumSquares(Isa isa, const NormShape& shape, const float* x, const float* mean,
                    int64_t begin, int64_t end, double* sum, float* partial);
// y = (x - mean) * scale + bias, max with 0 when `relu`. Not x * scale + shift: that cancels where
// the mean is large against the deviation.
void NormApply(Isa isa, const NormShape& shape, const float* x, const float* mean,
               const float* scale, const float* bias, bool relu, int64_t begin, int64_t end,
               float* y);

// Gradients. `y`: the output whose zeros mask dy (relu), or null.
// Sums of dy and of dy * (x - mean) into sum_dy and sum_dyx.
void NormGradientSums(Isa isa, const NormShape& shape, const float* x, const float* y,
                      const float* dy, const float* mean, int64_t begin, int64_t end,
                      double* sum_dy, double* sum_dyx, float* partial, float* partial_x);
// dx = dy * a + (x - mean) * b + c, a channel at a time.
void NormInputGradient(Isa isa, const NormShape& shape, const float* x, const float* y,
                       const float* dy, const float* mean, const float* a, const float* b,
                       const float* c, int64_t begin, int64_t end, float* dx);

}  // namespace parax
