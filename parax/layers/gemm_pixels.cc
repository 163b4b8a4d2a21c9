#include "parax/base/isa.h"
#include "parax/layers/gemm_pixels_internal.h"

namespace parax {
namespace {

// Calls visit(i, image, h, w) for points [begin, end) of a grid, i counting from 0.
template <typename Visit>
void ForPoints(const GemmGrid& grid, int64_t begin, int64_t end, Visit visit) {
  int64_t w = begin % grid.width;
  int64_t h = begin / grid.width % grid.height;
  int64_t image = begin / (grid.width * grid.height);
  for (int64_t i = 0; i < end - begin; ++i) {
    visit(i, image, h, w);
    if (++w < grid.width) continue;
    w = 0;
    if (++h < grid.height) continue;
    h = 0;
    ++image;
  }
}

}  // namespace

void GemmGrid::Sources(const float* source, const GemmTap& tap, int64_t begin, int64_t end,
                       const float* border, const float** addresses) const {
  ForPoints(*this, begin, end, [&](int64_t i, int64_t image, int64_t h, int64_t w) {
    const int64_t y = h * step + tap.down, x = w * step + tap.right;
    const bool inside = y >= 0 && y < source_height && x >= 0 && x < source_width;
    addresses[i] = inside
                       ? source + ((image * source_height + y) * source_width + x) * source_channels
                       : border;
  });
}

void GemmGrid::Destinations(float* out, int64_t begin, int64_t end, float** addresses) const {
  ForPoints(*this, begin, end, [&](int64_t i, int64_t image, int64_t h, int64_t w) {
    const int64_t y = h * out_step + out_down, x = w * out_step + out_right;
    addresses[i] = out + ((image * out_height + y) * out_width + x) * out_channels;
  });
}

GemmGrid ForwardGrid(const GemmConv& conv) {
  GemmGrid grid = {.images = conv.images,
                   .height = conv.out_height,
                   .width = conv.out_width,
                   .step = conv.stride,
                   .source_height = conv.in_height,
                   .source_width = conv.in_width,
                   .source_channels = conv.in_channels,
                   .taps = {},
                   .out_height = conv.out_height,
                   .out_width = conv.out_width,
                   .out_channels = conv.out_channels};
  for (int64_t t = 0; t < conv.kernel * conv.kernel; ++t) {
    grid.taps.push_back({t, t / conv.kernel * conv.dilation - conv.padding,
                         t % conv.kernel * conv.dilation - conv.padding});
  }
  return grid;
}

// Input pixel (h, w) gets from tap (i, j) what output pixel ((h + padding - i * dilation) / stride,
// ...) sends, where the division leaves no rest.
std::vector<GemmGrid> InputGrids(const GemmConv& conv) {
  std::vector<GemmGrid> grids;
  for (int64_t phase = 0; phase < conv.stride * conv.stride; ++phase) {
    const int64_t down_by = phase / conv.stride, right_by = phase % conv.stride;
    GemmGrid grid = {.images = conv.images,
                     .height = (conv.in_height - down_by + conv.stride - 1) / conv.stride,
                     .width = (conv.in_width - right_by + conv.stride - 1) / conv.stride,
                     .source_height = conv.out_height,
                     .source_width = conv.out_width,
                     .source_channels = conv.out_channels,
                     .taps = {},
                     .out_step = conv.stride,
                     .out_down = down_by,
                     .out_right = right_by,
                     .out_height = conv.in_height,
                     .out_width = conv.in_width,
                     .out_channels = conv.in_channels};
    for (int64_t t = 0; t < conv.kernel * conv.kernel; ++t) {
      const int64_t down = down_by + conv.padding - t / conv.kernel * conv.dilation;
      const int64_t right = right_by + conv.padding - t % conv.kernel * conv.dilation;
      if (down % conv.stride != 0 || right % conv.stride != 0) continue;
      grid.taps.push_back({t, down / conv.stride, right / conv.stride});
    }
    if (grid.points() > 0) grids.push_back(std::move(grid));
  }
  return grids;
}

const GemmLoops* GemmLoopsHere() {
  switch (CurrentIsa()) {
    case Isa::kAvx512:
      return &kGemmAvx512;
    case Isa::kAvx2:
      return &kGemmAvx2;
    case Isa::kBaseline:
      return nullptr;
  }
  return nullptr;
}

bool GemmWorks(int64_t in_channels, int64_t out_channels) {
  return in_channels % 16 == 0 && out_channels % 16 == 0 && GemmLoopsHere() != nullptr;
}

}  // namespace parax
