#pragma once

#include <cstddef>
#include <memory>

#include "parax/base/dtype.h"
#include "parax/layers/kernel.h"

// Element-by-element kernels on whole buffers, whatever their layout (padding included: zeros stay
// zeros). The destination may be one of the sources, else buffers must not overlap. Arguments stand
// in the order of the comments; `threads`: OpenMP threads to run with.
namespace parax {

// dst += src, float32, `elements` long.
std::shared_ptr<const Kernel> MakeAccumulate(size_t elements, int threads = 1);

// Of float32 or bf16 (computed in float32).
struct Elements {
  size_t count = 0;
  DType type = DType::kF32;
};
std::shared_ptr<const Kernel> MakeAddInto(const Elements& elements,
                                          int threads = 1);  // dst = a + b
// dst = max(0, src); NaN stays NaN, as in PyTorch: a diverged network must be seen.
std::shared_ptr<const Kernel> MakeRelu(const Elements& elements, int threads = 1);
// dst = max(0, a + b)
std::shared_ptr<const Kernel> MakeAddRelu(const Elements& elements, int threads = 1);
// dx, y, dy: dx = y <= 0 ? 0 : dy, with y the relu's OUTPUT.
std::shared_ptr<const Kernel> MakeReluBackward(const Elements& elements, int threads = 1);

// Rounds to bf16, or widens: `from` of one type to `to` of the other.
void Convert(const float* from, BFloat16* to, size_t elements, int threads = 1);
void Convert(const BFloat16* from, float* to, size_t elements, int threads = 1);

std::shared_ptr<const Kernel> MakeZero(size_t bytes, int threads = 1);  // dst
std::shared_ptr<const Kernel> MakeCopy(size_t bytes, int threads = 1);  // dst, src

}  // namespace parax
