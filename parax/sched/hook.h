#pragma once

#include <cstdint>

#include "parax/base/outcome.h"

namespace parax {

// Called by an instance between two ops: the place where a scheduler decides whether the next op
// may start. Hot code. Implementations: tests that inject delays; the overlap scheduler, later.
class OpHook {
 public:
  virtual ~OpHook() = default;
  virtual Outcome Enter(int leaf, uint64_t iteration, int op) noexcept = 0;
};

}  // namespace parax
