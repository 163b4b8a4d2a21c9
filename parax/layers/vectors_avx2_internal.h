#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

// What a vector is to the loops compiled for AVX2. Included by one .cc for each set of loops.
#define PARAX_TARGET __attribute__((target("avx2,fma")))

namespace parax {
namespace {

using V = __m256;
constexpr int kLanes = 8;

PARAX_TARGET inline V Set(float value) { return _mm256_set1_ps(value); }
PARAX_TARGET inline V Load(const float* from) { return _mm256_loadu_ps(from); }
PARAX_TARGET inline void Store(float* to, V value) { _mm256_storeu_ps(to, value); }
PARAX_TARGET inline V Fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
// max(floor, v), NaN where v is.
PARAX_TARGET inline V Floor(V floor, V v) { return _mm256_max_ps(floor, v); }

}  // namespace
}  // namespace parax
