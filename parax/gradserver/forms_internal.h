#pragma once

#include <cstddef>

#include "parax/gradserver/index_map.h"

namespace parax {

// Throws Error when the map does not cover `elements` or leaves its copy.
void CheckMap(const IndexMap& map, size_t elements);

// Whether the copy is the master's elements in their order.
bool IsIdentity(const IndexMap& map, size_t elements);

// Hot. Writes master elements [first, first + n), given in `values`, to their places in the copy.
void WriteForm(const IndexMap& map, const float* values, size_t first, size_t n, void* copy);

}  // namespace parax
