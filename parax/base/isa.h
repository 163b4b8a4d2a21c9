#pragma once

#include <cstdint>
#include <string_view>

// Run-time choice of the instruction set for loops of our own. No file is compiled with -march: a
// loop is written once, compiled for three levels, and the level is chosen when its kernel is made.
//
//   RunAtIsa(isa, [=]() PARAX_INLINE {
//     for (size_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
//   });
//
// Results are the same bits at all levels, as long as the loop has no floating-point reduction that
// depends on the vector's width: contraction to fused multiply-add is off (-ffp-contract=off), and
// the compiler never reorders floating-point sums.
namespace parax {

enum class Isa : uint8_t { kBaseline, kAvx2, kAvx512 };  // kBaseline: x86-64, that is SSE2

std::string_view Name(Isa isa);

// What new kernels of ours are to use: as much as oneDNN uses, which obeys ONEDNN_MAX_CPU_ISA.
Isa CurrentIsa();

// While it lives, kernels are made for at most this level (tests compare the levels).
class IsaLimit {
 public:
  explicit IsaLimit(Isa limit);
  ~IsaLimit();
  IsaLimit(const IsaLimit&) = delete;
  IsaLimit& operator=(const IsaLimit&) = delete;

 private:
  Isa before_;
};

// Marks a loop's lambda and all it calls: only inlined code is compiled for the caller's level.
#define PARAX_INLINE __attribute__((always_inline))

namespace isa_internal {

template <typename Loop>
void RunBaseline(Loop loop) {
  loop();
}
template <typename Loop>
__attribute__((target("avx2"))) void RunAvx2(Loop loop) {
  loop();
}
template <typename Loop>
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"))) void
RunAvx512(Loop loop) {
  loop();
}

}  // namespace isa_internal

template <typename Loop>
void RunAtIsa(Isa isa, Loop loop) {
  switch (isa) {
    case Isa::kAvx512:
      return isa_internal::RunAvx512(loop);
    case Isa::kAvx2:
      return isa_internal::RunAvx2(loop);
    case Isa::kBaseline:
      return isa_internal::RunBaseline(loop);
  }
}

}  // namespace parax
