#include "parax/layers/onednn_internal.h"
#include "parax/layers/panels_internal.h"

namespace parax {
namespace {

using Tag = dnnl::memory::format_tag;

Layout Tagged(const Dims& dims, Tag tag) {
  return LayoutOf(dnnl::memory::desc(dims, dnnl::memory::data_type::f32, tag));
}

Tag BlockedTag(int64_t lanes) { return lanes == 16 ? Tag::nChw16c : Tag::nChw8c; }

}  // namespace

Layout UsableLayout(const Layout& layout, Panels& panels) {
  const Dims d = layout.dims();
  panels = {d[0], 1, d[2], d[3], d[1], d[1]};
  const Layout channels_last = Layout::ChannelsLast(d);
  if (layout == channels_last) return layout;
  for (const int64_t lanes : {16, 8}) {
    if (layout != Tagged(d, BlockedTag(lanes))) continue;
    panels.lanes = lanes;
    panels.blocks = (d[1] + lanes - 1) / lanes;
    return layout;
  }
  return channels_last;
}

Layout SameArrangement(const Panels& panels, const Dims& dims) {
  return panels.lanes == panels.channels && panels.blocks == 1
             ? Layout::ChannelsLast(dims)
             : Tagged(dims, BlockedTag(panels.lanes));
}

}  // namespace parax
