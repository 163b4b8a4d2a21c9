#include "parax/layers/layout.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <dnnl.hpp>
#include <numeric>

#include "parax/base/error.h"
#include "parax/layers/onednn_internal.h"

namespace parax {
namespace {

dnnl::memory::data_type TypeOf(DType type) {
  switch (type) {
    case DType::kF32:
      return dnnl::memory::data_type::f32;
    case DType::kBF16:
      return dnnl::memory::data_type::bf16;
    case DType::kI32:
      return dnnl::memory::data_type::s32;
    case DType::kU8:
      return dnnl::memory::data_type::u8;
    case DType::kI64:
      break;
  }
  Fail("no layer takes tensors of {}", Name(type));
}

// Row-major strides when the dimensions are stored in the given order, outermost first.
Dims StridesInOrder(const Dims& dims, const std::vector<size_t>& order) {
  Dims strides(dims.size());
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = stride;
    stride *= dims[order[i]];
  }
  return strides;
}

Layout Strided(const Dims& dims, DType type, const std::vector<size_t>& order) {
  return LayoutOf(dnnl::memory::desc(dims, TypeOf(type), StridesInOrder(dims, order)));
}

}  // namespace

int64_t Product(const Dims& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

dnnl::memory::desc DescOf(const Layout& layout) {
  dnnl_memory_desc_t copy = nullptr;
  if (dnnl_memory_desc_clone(&copy, layout.get()) != dnnl_success) Fail("out of memory");
  return dnnl::memory::desc(copy);
}

Layout LayoutOf(const dnnl::memory::desc& desc) { return Layout(desc.get()); }

dnnl::memory::desc AnyDesc(const Dims& dims, DType type) {
  return dnnl::memory::desc(dims, TypeOf(type), dnnl::memory::format_tag::any);
}

Layout::Layout(const dnnl_memory_desc* descriptor) {
  dnnl_memory_desc_t copy = nullptr;
  if (dnnl_memory_desc_clone(&copy, descriptor) != dnnl_success) Fail("out of memory");
  descriptor_ = std::shared_ptr<const dnnl_memory_desc>(copy, [](const dnnl_memory_desc* d) {
    dnnl_memory_desc_destroy(const_cast<dnnl_memory_desc_t>(d));
  });
}

Layout Layout::Plain(const Dims& dims, DType type) {
  std::vector<size_t> order(dims.size());
  std::iota(order.begin(), order.end(), size_t{0});
  return Strided(dims, type, order);
}

Layout Layout::ChannelsLast(const Dims& dims, DType type) {
  if (dims.size() != 4) return Plain(dims, type);
  return Strided(dims, type, {0, 2, 3, 1});
}

Dims Layout::dims() const { return DescOf(*this).get_dims(); }

DType Layout::dtype() const {
  switch (DescOf(*this).get_data_type()) {
    case dnnl::memory::data_type::f32:
      return DType::kF32;
    case dnnl::memory::data_type::bf16:
      return DType::kBF16;
    case dnnl::memory::data_type::s32:
      return DType::kI32;
    case dnnl::memory::data_type::u8:
      return DType::kU8;
    default:
      Fail("a tensor of a oneDNN data type that has no counterpart here");
  }
}

size_t Layout::bytes() const { return empty() ? 0 : dnnl_memory_desc_get_size(get()); }

size_t Layout::elements() const { return empty() ? 0 : bytes() / SizeOf(dtype()); }

bool Layout::padded() const {
  return !empty() && elements() != static_cast<size_t>(Product(dims()));
}

Layout Layout::WithType(DType type) const {
  const dnnl::memory::desc desc = DescOf(*this);
  if (!desc.get_inner_blks().empty()) Fail("layout {} has inner blocks", ToString());
  return LayoutOf(dnnl::memory::desc(desc.get_dims(), TypeOf(type), desc.get_strides()));
}

// From the innermost block outwards, each block takes the low digits of its dimension's index; what
// is left is multiplied by the dimension's stride.
size_t Layout::Offset(std::span<const int64_t> index) const {
  const dnnl::memory::desc desc = DescOf(*this);
  const Dims blocks = desc.get_inner_blks(), block_dims = desc.get_inner_idxs();
  const Dims strides = desc.get_strides(), shift = desc.get_padded_offsets();
  if (index.size() != strides.size())
    Fail("index of {} numbers into a tensor of {} dimensions", index.size(), strides.size());
  Dims left(index.begin(), index.end());
  for (size_t d = 0; d < left.size(); ++d) left[d] += shift[d];
  int64_t offset = desc.get_submemory_offset(), stride = 1;
  for (size_t i = blocks.size(); i-- > 0;) {
    int64_t& digits = left[static_cast<size_t>(block_dims[i])];
    offset += digits % blocks[i] * stride;
    digits /= blocks[i];
    stride *= blocks[i];
  }
  return static_cast<size_t>(std::inner_product(left.begin(), left.end(), strides.begin(), offset));
}

std::string Layout::ToString() const {
  if (empty()) return "none";
  const dnnl::memory::desc desc = DescOf(*this);
  const Dims sizes = desc.get_dims();
  const std::string tail = fmt::format(":{}:{}", fmt::join(sizes, "x"), Name(dtype()));
  if (desc.get_format_kind() != dnnl::memory::format_kind::blocked) return "opaque" + tail;

  const Dims blocks = desc.get_inner_blks(), block_dims = desc.get_inner_idxs();
  const Dims strides = desc.get_strides();
  Dims outer = desc.get_padded_dims();
  for (size_t i = 0; i < blocks.size(); ++i) outer[static_cast<size_t>(block_dims[i])] /= blocks[i];
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return strides[a] != strides[b] ? strides[a] > strides[b] : outer[a] > outer[b];
  });
  std::string tag;
  for (size_t d : order) {
    const bool blocked = std::find(block_dims.begin(), block_dims.end(), static_cast<int64_t>(d)) !=
                         block_dims.end();
    tag += static_cast<char>((blocked ? 'A' : 'a') + static_cast<char>(d));
  }
  for (size_t i = 0; i < blocks.size(); ++i)
    tag += std::to_string(blocks[i]) + static_cast<char>('a' + static_cast<char>(block_dims[i]));
  return tag + tail;
}

bool operator==(const Layout& a, const Layout& b) {
  if (a.empty() || b.empty()) return a.empty() && b.empty();
  return dnnl_memory_desc_equal(a.get(), b.get()) != 0;
}

}  // namespace parax
