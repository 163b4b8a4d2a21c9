#pragma once

#include <algorithm>

#include "parax/layers/layout.h"

namespace parax {

// 4-D activations as dense panels of pixels with `width` channels each. Channels last: one panel an
// image, all channels wide. Blocked (nChw16c, nChw8c): one panel an image and channel block.
struct Panels {
  int64_t images = 0, blocks = 1, height = 0, width_pixels = 0;
  int64_t lanes = 0;     // channels a pixel, padding lanes counted
  int64_t channels = 0;  // real ones
  DType type = DType::kF32;
  int64_t panel_elements() const { return height * width_pixels * lanes; }
};

// How our kernels will see an activation of this layout, and the layout to ask the plan for: the
// same if it is one of the above, else channels last.
Layout UsableLayout(const Layout& layout, Panels& panels);

// The layout of another tensor (other height and width, same channels) in the same arrangement.
Layout SameArrangement(const Panels& panels, const Dims& dims);

}  // namespace parax
