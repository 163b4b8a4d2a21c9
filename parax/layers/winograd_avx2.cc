#include <immintrin.h>

#include <algorithm>

#include "parax/layers/winograd_internal.h"

#define PARAX_TARGET __attribute__((target("avx2,fma")))

namespace parax {
namespace {

using V = __m256;
constexpr int kLanes = 8;
constexpr int kMostRows = 6, kMostPanels = 1;  // 12 of the 16 registers hold sums

PARAX_TARGET inline V Set(float value) { return _mm256_set1_ps(value); }
PARAX_TARGET inline V Load(const float* from) { return _mm256_loadu_ps(from); }
PARAX_TARGET inline void Store(float* to, V value) { _mm256_storeu_ps(to, value); }
PARAX_TARGET inline V Fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }

#include "parax/layers/winograd_loops_internal.h"

}  // namespace

const WinogradLoops kWinogradAvx2 = kLoops;

}  // namespace parax
