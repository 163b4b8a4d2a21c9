#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parax/base/dtype.h"

namespace parax {

// Where the elements of a parameter's master array go in a packed copy of it: master elements
// [i * run, (i + 1) * run) go to positions base[i] + j * stride, j = 0 .. run-1; a base of kNone:
// padding lanes of the master that the copy does not hold. Positions of the copy that no element
// goes to stay zero.
struct IndexMap {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t run = 1;
  int64_t stride = 1;
  std::vector<uint32_t> base;
  uint64_t copy_elements = 0;  // of the packed copy, with its padding
  DType type = DType::kF32;    // of the copy, or kBF16: rounded

  size_t copy_bytes() const { return copy_elements * SizeOf(type); }
  bool identity() const { return base.size() == 1 && base[0] == 0 && stride == 1; }
};

// The shortest IndexMap for "master element i goes to position[i]" (kNone: nowhere).
IndexMap CompressIndexMap(const std::vector<uint32_t>& position, uint64_t copy_elements);

}  // namespace parax
