#include "parax/layers/batch_norm_kernels_internal.h"
#include "parax/layers/vectors_avx512_internal.h"

namespace parax {
namespace {

using Mask = __mmask16;
PARAX_TARGET inline Mask Positive(V v) {
  return _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_NLE_UQ);
}
PARAX_TARGET inline V Keep(Mask mask, V v) { return _mm512_maskz_mov_ps(mask, v); }
PARAX_TARGET inline uint64_t ToBits(Mask mask) { return mask; }
PARAX_TARGET inline Mask FromBits(uint64_t bits) { return static_cast<Mask>(bits); }

#include "parax/layers/batch_norm_loops_internal.h"

}  // namespace

const NormLoops kNormAvx512 = kLoops;

}  // namespace parax
