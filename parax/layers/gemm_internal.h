#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "parax/layers/finish_internal.h"

// Convolutions as matrix products over channels, a tap of the kernel at a time, for channels-last
// activations. Rows of the left matrix are pixels, named by address, so nothing is copied (no
// im2col): strides, dilation and borders cost only other addresses.
namespace parax {

inline constexpr char kGemmName[] = "parax:gemm";

struct GemmConv {
  int64_t images = 0;
  int64_t in_height = 0, in_width = 0, in_channels = 0;
  int64_t out_height = 0, out_width = 0, out_channels = 0;
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;
  int threads = 1;
  bool packed = false;  // the weights' arrangement; forward only, out_channels % kGemmGroup == 0
  std::optional<FinishOptions> finish = std::nullopt;  // forward only
};

// Whether these kernels can run here at all (they need AVX2 with FMA), and on whole 16 channels.
bool GemmWorks(int64_t in_channels, int64_t out_channels);

inline constexpr int64_t kGemmGroup = 64;  // columns that lie together in a packed right matrix

// Arguments: x, weights [kernel][kernel][in][out] or packed [out / 64][kernel][kernel][in][64], y,
// scratch; finished: as finish_internal.h tells.
std::shared_ptr<const Kernel> MakeGemmForward(const GemmConv& conv);
// Whether y may lie over the residual: y holds no sums before they are finished.
bool GemmFinishesInPlace(const GemmConv& conv);
// Arguments: gradient of y, weights [kernel][kernel][in][out], gradient of x, scratch.
std::shared_ptr<const Kernel> MakeGemmInputGrad(const GemmConv& conv);
// Arguments: x, gradient of y, gradient of the weights [kernel][kernel][in][out], scratch.
std::shared_ptr<const Kernel> MakeGemmWeightGrad(const GemmConv& conv);

// Below: what the loops of each instruction set agree on.

inline constexpr int64_t kGemmOuterGroup = 32;

// For each of `rows` rows and columns from first_column (a multiple of kGemmGroup) to last_column:
// c[row][column] = or += a[row] * b, over `depth` values of a from a_offset on. b is packed: groups
// of kGemmGroup of its `columns` (the last one may have fewer, a multiple of 16), each
// [b_depth][columns of the group], of which `depth` rows from b_first on count.
struct GemmRows {
  int64_t rows, columns, first_column, last_column, depth;
  const float* const* a;
  int64_t a_offset;
  const float* b;
  int64_t b_depth, b_first;
  float* const* c;
  bool accumulate;
  const float* const* next;  // `rows` that will be read soon, to be fetched meanwhile; may be null
  const Finish* finish;      // of the sums, before they are stored; null: none
};

// c[outer][columns] = or += a^T * b over `depth` pixels: a[pixel] points at `outer` values, b is
// packed: groups of kGemmOuterGroup columns (the last one may have 16), each [depth][columns of
// the group]. c's rows lie c_row floats apart.
struct GemmOuter {
  int64_t outer, columns, depth;
  const float* const* a;
  const float* b;
  float* c;
  int64_t c_row;
  bool accumulate;
  // The `depth` pixels that come next, to be fetched meanwhile; null: none known.
  const float* const* next_a;
  const float* const* next_b;
};

struct GemmLoops {
  void (*multiply_rows)(const GemmRows& product);
  void (*multiply_outer)(const GemmOuter& product);
};

extern const GemmLoops kGemmAvx2, kGemmAvx512;

}  // namespace parax
