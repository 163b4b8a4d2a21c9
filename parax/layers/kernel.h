#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "parax/base/outcome.h"

namespace parax {

// What changes from one iteration to the next, as seen by kernels.
struct RunContext {
  uint64_t seed = 0;
  uint64_t iteration = 0;               // 1 for the first
  const int64_t* sample_ids = nullptr;  // of the micro-batch, one an image
};

// A kernel tied to the buffers of one instance: running it allocates, locks and logs nothing of
// ours. Used by one thread at a time.
class BoundKernel {
 public:
  virtual ~BoundKernel() = default;
  virtual Outcome Run(const RunContext& context) noexcept = 0;
};

// A compiled kernel: const, shared by all instances; scratch memory comes with the arguments.
class Kernel {
 public:
  virtual ~Kernel() = default;
  // `arguments`: addresses in the order the op lists them (layer.h), the scratch buffer last when
  // scratch_bytes() > 0. Setup code.
  virtual std::unique_ptr<BoundKernel> Bind(std::span<void* const> arguments) const = 0;
  virtual std::string implementation() const = 0;  // e.g. "brgconv:avx512_core", "parax:add_relu"
  virtual size_t scratch_bytes() const { return 0; }
};

}  // namespace parax
