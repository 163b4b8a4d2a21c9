#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "parax/base/dtype.h"

// What a vector is to the loops compiled for AVX-512. Included by one .cc for each set of loops.
#define PARAX_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))

namespace parax {
namespace {

using V = __m512;
constexpr int kLanes = 16;

PARAX_TARGET inline V Set(float value) { return _mm512_set1_ps(value); }
PARAX_TARGET inline V Load(const float* from) { return _mm512_loadu_ps(from); }
PARAX_TARGET inline void Store(float* to, V value) { _mm512_storeu_ps(to, value); }
PARAX_TARGET inline V Fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
// max(floor, v), NaN where v is. Masked by nothing: GCC 12 calls the plain one's unused operand
// uninitialised.
PARAX_TARGET inline V Floor(V floor, V v) { return _mm512_maskz_max_ps(0xffff, floor, v); }

// As vectors_bf16_internal.h, of which the compiler would make more instructions. The forms with a
// mask: GCC 12 takes the others for reads of uninitialised memory.
using Words = uint32_t __attribute__((vector_size(4 * kLanes)));
constexpr __mmask16 kAll = 0xffff;

PARAX_TARGET inline V Load(const BFloat16* from) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  const __m512i wide = _mm512_maskz_cvtepu16_epi32(kAll, halves);
  return reinterpret_cast<V>(reinterpret_cast<Words>(wide) << 16);
}
PARAX_TARGET inline void Store(BFloat16* to, V value) {
  const Words u = reinterpret_cast<Words>(value);
  const Words up = u + 0x7fff + ((u >> 16) & 1);
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  const Words rounded = reinterpret_cast<Words>(_mm512_mask_mov_epi32(
      reinterpret_cast<__m512i>(up), nan, reinterpret_cast<__m512i>(u | 0x400000)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_maskz_cvtepi32_epi16(kAll, reinterpret_cast<__m512i>(rounded >> 16)));
}

}  // namespace
}  // namespace parax
