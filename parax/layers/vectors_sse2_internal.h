#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "parax/base/dtype.h"

// What a vector is to the loops compiled for any x86-64. Included by one .cc for each set of loops.
#define PARAX_TARGET

namespace parax {
namespace {

using V = __m128;
constexpr int kLanes = 4;

inline V Set(float value) { return _mm_set1_ps(value); }
inline V Load(const float* from) { return _mm_loadu_ps(from); }
inline void Store(float* to, V value) { _mm_storeu_ps(to, value); }

#include "parax/layers/vectors_bf16_internal.h"

}  // namespace
}  // namespace parax
