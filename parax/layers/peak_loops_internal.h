// Multiply-adds as fast as they go, for every V (vectors_*_internal.h) with Fma. Included inside a
// namespace by one .cc for each instruction set.

// Chains at a time: more than latency times units (10 on the CPUs known), and with both constants
// no more than AVX2's 16 registers.
constexpr int kChains = 12;

PARAX_TARGET float MultiplyAdds(int64_t rounds) {
  // x * 0.75 + 0.25 stays between its start and 1: no infinities, no denormals.
  const V scale = Set(0.75f), shift = Set(0.25f);
  V chain[kChains];
  for (int c = 0; c < kChains; ++c) chain[c] = Set(static_cast<float>(c));
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) chain[c] = Fma(chain[c], scale, shift);
  }
  alignas(64) float lanes[kLanes];
  float sum = 0;
  for (int c = 0; c < kChains; ++c) {
    Store(lanes, chain[c]);
    sum += lanes[0];
  }
  return sum;
}

constexpr PeakLoop kLoop = {MultiplyAdds, 2.0 * kChains* kLanes};
