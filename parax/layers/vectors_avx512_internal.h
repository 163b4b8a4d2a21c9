#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

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

}  // namespace
}  // namespace parax
