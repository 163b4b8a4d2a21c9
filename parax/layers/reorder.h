#pragma once

#include <memory>

#include "parax/layers/kernel.h"
#include "parax/layers/layout.h"

namespace parax {

// Copies a tensor from one layout (or element type) to another of the same logical sizes; padding
// of the destination is zeroed. Arguments: source, destination, [scratch]. Where the library cannot
// (bf16 without AVX-512), a way through float32 with `threads` threads.
std::shared_ptr<const Kernel> MakeReorder(const Layout& from, const Layout& to, int threads = 1);

}  // namespace parax
