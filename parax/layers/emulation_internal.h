#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parax/layers/kernel.h"
#include "parax/layers/layout.h"

// bf16 on CPUs without it: float32 kernels at work on widened copies, whose results are rounded.
namespace parax {

inline constexpr char kEmulatedPrefix[] = "emulated:";

// One argument as the op has it (`outer`) and as the kernel wants it (`inner`). Where they differ,
// a copy is made: of what is read before the kernel runs, in any float32 layout; of what is written
// after it, in the arrangement of `outer`.
struct WidenedArgument {
  Layout outer, inner;
  bool write = false;
};

// `kernel`, whose arguments (without its scratch) are given, as a kernel on the outer layouts. Its
// name is `prefix` and that of `kernel`, which may have the prefix already.
std::shared_ptr<const Kernel> OnWidenedCopies(std::shared_ptr<const Kernel> kernel,
                                              std::vector<WidenedArgument> arguments, int threads,
                                              const std::string& prefix);

}  // namespace parax
