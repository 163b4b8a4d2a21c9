#pragma once

#include <cstdint>
#include <memory>

#include "parax/base/isa.h"
#include "parax/layers/finish_internal.h"
#include "parax/layers/panels_internal.h"

// Winograd's minimal filtering F(4x4, 3x3) (Lavin, Gray 2015): a 3x3 convolution with stride 1 as
// 36 matrix products over tiles of 4x4 outputs, which takes a quarter of the multiplications:
//   y = A^T [(G g G^T) * (B^T d B)] A
// and its derivative in the weights: dg = G^T [(B^T d B) * (A dy A^T)] G. The derivative in the
// input is the same convolution of dy with the weights turned by 180 degrees.
namespace parax {

inline constexpr char kWinogradName[] = "parax:winograd";

struct WinogradConv {
  Panels x, y;  // y has the convolution's output sizes
  int64_t padding = 0;
  int threads = 1;
  std::optional<FinishOptions> finish = std::nullopt;  // not of weight gradients
};

// Whether these kernels can run here at all (they need AVX2 with FMA), and on whole 16 channels.
bool WinogradWorks(int64_t in_channels, int64_t out_channels);

// Arguments: x, weights [3][3][in][out], y, scratch; finished: as finish_internal.h tells.
// `rotated`: the weights are [3][3][out][in] and turned by 180 degrees, as for the gradient of
// another convolution's input.
std::shared_ptr<const Kernel> MakeWinogradConv(const WinogradConv& conv, bool rotated);
// Arguments: x, gradient of y, gradient of the weights [3][3][in][out], scratch.
std::shared_ptr<const Kernel> MakeWinogradWeightGrad(const WinogradConv& conv);

// Below: what the loops of each instruction set agree on.

// Interpolation points 0, +-a, +-b and infinity. Of the simple fractions tried, these have the
// least rounding error: about twice that of direct convolution, where the usual 1 and 2 have five
// times (docs/design/layers.md).
inline constexpr float kWinogradA = 0.625f, kWinogradB = 1.5f;
inline constexpr int kWinogradPanel = 16;  // channels that lie together in packed weights

// Where a tile lies in an image; parts may be outside.
struct WinogradWindow {
  int64_t image, top, left;
};

// c[rows][16 * panels] = a * b, or += a * b: rows of c `c_row` floats apart; a's element (row, k)
// at row * a_row + k * a_depth; b's (k, column) at k * b_depth + column / 16 * b_panel + column
// % 16.
struct WinogradProduct {
  int64_t rows, panels, depth;
  const float* a;
  int64_t a_row, a_depth;
  const float* b;
  int64_t b_depth, b_panel;
  float* c;
  int64_t c_row;
  bool accumulate;
};

struct WinogradLoops {
  // B^T d B of the 6x6 window, and A dy A^T of the 4x4 window: value (i, j) of channel c goes to
  // v[(6 i + j) * stride + c].
  void (*gather_input)(const Panels& x, const float* data, const WinogradWindow& window, float* v,
                       int64_t stride);
  void (*gather_output_grad)(const Panels& y, const float* data, const WinogradWindow& window,
                             float* v, int64_t stride);
  // A^T m A, finished, into the 4x4 window; what lies outside the image is left out.
  void (*scatter_output)(const float* m, int64_t stride, const Panels& y, float* data,
                         const WinogradWindow& window, const Finish* finish);
  // G g G^T of weights [3][3][inputs][outputs] (rotated: of [3][3][outputs][inputs], turned by 180
  // degrees) into [36] x [outputs / 16][inputs][16], for some panels of 16 outputs.
  void (*pack_weights)(const float* g, int64_t inputs, int64_t outputs, bool rotated,
                       int64_t first_panel, int64_t last_panel, float* u, int64_t stride);
  // G^T u G for a row of `outputs` weights; g's nine values lie `plane` apart.
  void (*unpack_weight_grad)(const float* u, int64_t stride, int64_t plane, int64_t outputs,
                             float* g);
  void (*multiply)(const WinogradProduct& product);
};

extern const WinogradLoops kWinogradAvx2, kWinogradAvx512;

}  // namespace parax
