#pragma once

#include <map>
#include <string>
#include <vector>

#include "parax/base/dtype.h"
#include "parax/layers/layout.h"

namespace parax {

// A named tensor in canonical (PyTorch) order, always float32 in memory once loaded.
struct NamedTensor {
  Dims dims;
  std::vector<float> values;
};
using TensorMap = std::map<std::string, NamedTensor>;

}  // namespace parax
