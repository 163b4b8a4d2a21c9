#include <immintrin.h>

#include <algorithm>

#include "parax/layers/winograd_internal.h"

#define PARAX_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))

namespace parax {
namespace {

using V = __m512;
constexpr int kLanes = 16;
constexpr int kMostRows = 12, kMostPanels = 2;  // 24 of the 32 registers hold sums

PARAX_TARGET inline V Set(float value) { return _mm512_set1_ps(value); }
PARAX_TARGET inline V Load(const float* from) { return _mm512_loadu_ps(from); }
PARAX_TARGET inline void Store(float* to, V value) { _mm512_storeu_ps(to, value); }
PARAX_TARGET inline V Fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }

#include "parax/layers/winograd_loops_internal.h"

}  // namespace

const WinogradLoops kWinogradAvx512 = kLoops;

}  // namespace parax
