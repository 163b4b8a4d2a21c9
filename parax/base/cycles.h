#pragma once

#include <cstdint>

namespace parax {

// The time-stamp counter: a fraction of a clock call's cost. It ticks evenly, whatever the core's
// clock does, on every x86-64 processor with AVX2; cores' counters may differ by a little.
inline uint64_t ReadCycles() noexcept { return __builtin_ia32_rdtsc(); }

}  // namespace parax
