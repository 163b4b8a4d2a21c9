#pragma once

#include <cstdint>

#include "parax/base/outcome.h"

namespace parax {

// Called by an instance before an op, for tests that inject delays or failures. Hot code. What a
// scheduler decides there is in scheduler.h.
class OpHook {
 public:
  virtual ~OpHook() = default;
  virtual Outcome Enter(int leaf, uint64_t iteration, int op) noexcept = 0;
};

}  // namespace parax
