#include "parax/layers/onednn_internal.h"
#include "parax/layers/panels_internal.h"

namespace parax {
namespace {

using Tag = dnnl::memory::format_tag;

Layout Tagged(const Dims& dims, DType type, Tag tag) {
  const auto number =
      type == DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  return LayoutOf(dnnl::memory::desc(dims, number, tag));
}

Tag BlockedTag(int64_t lanes) { return lanes == 16 ? Tag::nChw16c : Tag::nChw8c; }

}  // namespace

Layout UsableLayout(const Layout& layout, Panels& panels) {
  const Dims d = layout.dims();
  const DType type = layout.dtype();
  panels = {d[0], 1, d[2], d[3], d[1], d[1], type};
  const Layout channels_last = Layout::ChannelsLast(d, type);
  if (layout == channels_last) return layout;
  for (const int64_t lanes : {16, 8}) {
    if (layout != Tagged(d, type, BlockedTag(lanes))) continue;
    panels.lanes = lanes;
    panels.blocks = (d[1] + lanes - 1) / lanes;
    return layout;
  }
  return channels_last;
}

Layout SameArrangement(const Panels& panels, const Dims& dims) {
  return panels.lanes == panels.channels && panels.blocks == 1
             ? Layout::ChannelsLast(dims, panels.type)
             : Tagged(dims, panels.type, BlockedTag(panels.lanes));
}

}  // namespace parax
