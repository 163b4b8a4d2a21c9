#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "parax/gradserver/kernels_internal.h"

namespace parax {

inline constexpr size_t kBlock = 1024;    // elements summed at once: partial sums stay in L1
inline constexpr size_t kTreeDepth = 17;  // partial sums alive at once: enough for 65,536 groups

// Hot. out = factor * sum over the leaves' arrays at [offset, offset + n). The order depends on
// leaf numbers only: groups of `group` consecutive numbers are folded left; groups combine pairwise
// by number, then pairs, ... (an odd one out goes up unchanged). Leaves that are not in `leaves`
// (ascending) are absent: nothing is added in their place. `partial`: kTreeDepth * kBlock floats.
void SumLeaves(const Kernels& kernels, std::span<const uint16_t> leaves,
               const float* const* gradients, int group, size_t offset, size_t n, float factor,
               float* out, float* partial);

}  // namespace parax
