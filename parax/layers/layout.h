#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parax/base/dtype.h"

struct dnnl_memory_desc;

namespace parax {

// Logical sizes. Activations: N, C, H, W (or N, C). Convolution weights: O, I, H, W, or with groups
// G, O/G, I/G, H, W. The logical order never tells the physical one.
using Dims = std::vector<int64_t>;

int64_t Product(const Dims& dims);

// Logical sizes, element type and the arrangement in memory of one tensor: an immutable, cheaply
// copied oneDNN memory descriptor (kept out of this header: it is heavy).
class Layout {
 public:
  Layout() = default;                                               // empty: no tensor
  explicit Layout(const dnnl_memory_desc* descriptor);              // copies it
  static Layout Plain(const Dims& dims, DType type = DType::kF32);  // row-major: nchw, oihw, nc
  static Layout ChannelsLast(const Dims& dims, DType type = DType::kF32);  // nhwc; 2-D: as Plain

  bool empty() const { return descriptor_ == nullptr; }
  const dnnl_memory_desc* get() const { return descriptor_.get(); }
  Dims dims() const;
  DType dtype() const;
  size_t bytes() const;     // with padding
  size_t elements() const;  // with padding
  bool padded() const;      // some elements in memory belong to no logical index
  // Distance in elements from the start to a logical index, from strides and inner blocks.
  size_t Offset(std::span<const int64_t> index) const;
  // The same arrangement of another type; of layouts without inner blocks only.
  Layout WithType(DType type) const;
  std::string ToString() const;  // such as "aBcd16b:32x64x56x56:fp32"; for plans and messages

  friend bool operator==(const Layout& a, const Layout& b);

 private:
  std::shared_ptr<const dnnl_memory_desc> descriptor_;
};

}  // namespace parax
