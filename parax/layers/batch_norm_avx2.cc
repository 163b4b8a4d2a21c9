#include "parax/layers/batch_norm_kernels_internal.h"
#include "parax/layers/vectors_avx2_internal.h"

namespace parax {
namespace {

using Mask = V;
PARAX_TARGET inline Mask Positive(V v) {
  return _mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_NLE_UQ);
}
PARAX_TARGET inline V Keep(Mask mask, V v) { return _mm256_and_ps(mask, v); }
PARAX_TARGET inline uint64_t ToBits(Mask mask) {
  return static_cast<uint64_t>(_mm256_movemask_ps(mask));
}
PARAX_TARGET inline Mask FromBits(uint64_t bits) {
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i all = _mm256_set1_epi32(static_cast<int>(bits));
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, lane), lane));
}

#include "parax/layers/batch_norm_loops_internal.h"

}  // namespace

const NormLoops kNormAvx2 = kLoops;

}  // namespace parax
