#pragma once

#include <memory>

#include "parax/layers/kernel.h"
#include "parax/layers/layout.h"

namespace parax {

// Copies a tensor from one layout (or element type) to another of the same logical sizes; padding
// of the destination is zeroed. Arguments: source, destination, [scratch].
std::shared_ptr<const Kernel> MakeReorder(const Layout& from, const Layout& to);

}  // namespace parax
