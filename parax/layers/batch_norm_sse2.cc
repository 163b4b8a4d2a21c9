#include "parax/layers/batch_norm_kernels_internal.h"
#include "parax/layers/vectors_sse2_internal.h"

namespace parax {
namespace {

using Mask = V;
inline V Floor(V floor, V v) { return _mm_max_ps(floor, v); }
inline Mask Positive(V v) { return _mm_cmpnle_ps(v, _mm_setzero_ps()); }
inline V Keep(Mask mask, V v) { return _mm_and_ps(mask, v); }
inline uint64_t ToBits(Mask mask) { return static_cast<uint64_t>(_mm_movemask_ps(mask)); }
inline Mask FromBits(uint64_t bits) {
  const __m128i lane = _mm_setr_epi32(1, 2, 4, 8);
  const __m128i all = _mm_set1_epi32(static_cast<int>(bits));
  return _mm_castsi128_ps(_mm_cmpeq_epi32(_mm_and_si128(all, lane), lane));
}

#include "parax/layers/batch_norm_loops_internal.h"

}  // namespace

const NormLoopSet kNormSse2 = kLoops;

}  // namespace parax
