#pragma once

#include <cstddef>
#include <memory>

#include "parax/layers/kernel.h"

// Element-by-element kernels on whole buffers, whatever their layout (padding included: zeros stay
// zeros). The destination may be one of the sources, else buffers must not overlap. Arguments stand
// in the order of the comments; `threads`: OpenMP threads to run with.
namespace parax {

// float32, `elements` long.
std::shared_ptr<const Kernel> MakeAccumulate(size_t elements, int threads = 1);  // dst += src
std::shared_ptr<const Kernel> MakeAddInto(size_t elements, int threads = 1);     // dst = a + b
// dst = max(0, src); NaN stays NaN, as in PyTorch: a diverged network must be seen.
std::shared_ptr<const Kernel> MakeRelu(size_t elements, int threads = 1);
std::shared_ptr<const Kernel> MakeAddRelu(size_t elements, int threads = 1);  // dst = max(0, a + b)
// dx, y, dy: dx = y <= 0 ? 0 : dy, with y the relu's OUTPUT.
std::shared_ptr<const Kernel> MakeReluBackward(size_t elements, int threads = 1);

std::shared_ptr<const Kernel> MakeZero(size_t bytes, int threads = 1);  // dst
std::shared_ptr<const Kernel> MakeCopy(size_t bytes, int threads = 1);  // dst, src

}  // namespace parax
