#include "parax/layers/batch_norm_kernels_internal.h"

namespace parax {

namespace {

const NormLoopSet& LoopSet(Isa isa) {
  return isa == Isa::kAvx512 ? kNormAvx512 : isa == Isa::kAvx2 ? kNormAvx2 : kNormSse2;
}

}  // namespace

template <>
const NormLoops<float>& NormLoopsFor(Isa isa) {
  return LoopSet(isa).floats;
}
template <>
const NormLoops<BFloat16>& NormLoopsFor(Isa isa) {
  return LoopSet(isa).bf16;
}

template <typename T>
void AddMoments(Isa isa, const T* x, int64_t stride, int64_t rows, int64_t channels, int64_t count,
                NormMoments moments, float* scratch) {
  NormRows<T> block = {.rows = rows, .width = channels, .stride = stride};
  block.x = x;
  float* const sums = scratch + channels;
  float* const squares = sums + channels;
  NormLoopsFor<T>(isa).moments(block, scratch, sums, squares);
  const double n = static_cast<double>(rows);
  const double before = static_cast<double>(count);
  const double share = n / (before + n);
  RunAtIsa(isa, [=, mean_of = moments.mean, m2_of = moments.m2]() PARAX_INLINE {
    double* __restrict mean = mean_of;
    double* __restrict m2 = m2_of;
    const float* __restrict shift = scratch;
    const float* __restrict sum = sums;
    const float* __restrict square = squares;
    const double inverse = 1.0 / n;
    for (int64_t c = 0; c < channels; ++c) {
      const double off = static_cast<double>(sum[c]) * inverse;
      const double deviations = static_cast<double>(square[c]) - static_cast<double>(sum[c]) * off;
      const double delta = static_cast<double>(shift[c]) + off - mean[c];
      m2[c] += deviations + delta * delta * (before * share);
      mean[c] += delta * share;
    }
  });
}

template void AddMoments(Isa, const float*, int64_t, int64_t, int64_t, int64_t, NormMoments,
                         float*);
template void AddMoments(Isa, const BFloat16*, int64_t, int64_t, int64_t, int64_t, NormMoments,
                         float*);

}  // namespace parax
