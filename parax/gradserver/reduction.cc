#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "parax/gradserver/reduction_internal.h"

namespace parax {
namespace {

struct Partial {
  const float* values = nullptr;  // null: nobody in this part of the tree
  float* own = nullptr;           // where a sum may be written
};

}  // namespace

void SumLeaves(const Kernels& kernels, std::span<const uint16_t> leaves,
               const float* const* gradients, int group, size_t offset, size_t n, float factor,
               float* out, float* partial) {
  if (leaves.empty()) {
    std::memset(out, 0, n * sizeof(float));
    return;
  }
  const uint32_t groups = leaves.back() / static_cast<uint32_t>(group) + 1;
  for (size_t done = 0; done < n; done += kBlock) {
    const size_t count = std::min(kBlock, n - done);
    std::array<Partial, kTreeDepth> stack;
    for (size_t i = 0; i < kTreeDepth; ++i) stack[i].own = partial + i * kBlock;
    const auto add = [&](Partial& to, const float* values) {
      if (to.values == nullptr) {
        to.values = values;
      } else {
        kernels.add(to.own, to.values, values, count);
        to.values = to.own;
      }
    };
    size_t depth = 0;
    const auto merge_top = [&] {
      Partial& below = stack[depth - 2];
      Partial& top = stack[depth - 1];
      if (below.values == nullptr) {
        std::swap(below, top);
      } else if (top.values != nullptr) {
        add(below, top.values);
      }
      --depth;
    };
    size_t next = 0;
    for (uint32_t g = 0; g < groups; ++g) {
      Partial& fold = stack[depth++];
      fold.values = nullptr;
      for (; next < leaves.size() && leaves[next] / static_cast<uint32_t>(group) == g; ++next) {
        add(fold, gradients[leaves[next]] + offset + done);
      }
      // A binary counter: 2^k groups that stand complete on the stack become one.
      for (uint32_t filled = g + 1; filled % 2 == 0; filled /= 2) merge_top();
    }
    while (depth > 1) merge_top();
    kernels.scale(out + done, stack[0].values, factor, count);
  }
}

}  // namespace parax
