#include <omp.h>

#include <algorithm>

#include "parax/layers/gemm_pixels_internal.h"
#include "parax/layers/own_kernel.h"

namespace parax {
namespace {

constexpr int64_t kMostPixels = 128;  // whose values, and those of the gradient, stay in L1 and L2
constexpr int64_t kResidentFloats = 65536;  // of weight gradients, which stay in L2

// For each tap: gradient[in][out] = sum over output pixels of x^T * dy. A block of columns stays in
// cache while all pixels go by.
class WeightGradPass {
 public:
  explicit WeightGradPass(const GemmConv& conv)
      : grid_(ForwardGrid(conv)),
        loops_(GemmLoopsHere()),
        threads_(static_cast<int>(std::min<int64_t>(conv.threads, conv.in_channels / kUnit))),
        block_(conv.in_channels <= 64 ? kMostPixels / 2 : kMostPixels),
        columns_(std::clamp(kResidentFloats / conv.in_channels / kGemmOuterGroup * kGemmOuterGroup,
                            4 * kGemmOuterGroup,
                            std::max(4 * kGemmOuterGroup, conv.out_channels))) {}

  // A row of zeros (the border), and for each thread a block of the packed output gradient.
  size_t scratch_floats() const {
    return static_cast<size_t>(grid_.source_channels + threads_ * block_ * columns_);
  }

  Outcome operator()(const Addresses<4>& at, const RunContext&) const {
    float* zeros = Floats(at[3]);
    std::fill_n(zeros, grid_.source_channels, 0.0f);
    ForPieces(threads_, static_cast<size_t>(grid_.source_channels), Piece(),
              [&](size_t begin, size_t end) {
                const int64_t thread = threads_ == 1 ? 0 : omp_get_thread_num();
                float* packed = zeros + grid_.source_channels + thread * block_ * columns_;
                for (const GemmTap& tap : grid_.taps)
                  for (int64_t c = 0; c < grid_.out_channels; c += columns_)
                    Columns(tap, static_cast<int64_t>(begin), static_cast<int64_t>(end), c, at,
                            zeros, packed);
              });
    return Outcome::kOk;
  }

 private:
  static constexpr int64_t kUnit = 16;

  size_t Piece() const {
    const int64_t units = grid_.source_channels / kUnit;
    return static_cast<size_t>((units + threads_ - 1) / threads_ * kUnit);
  }

  // Columns [column, column + columns_) of the gradient's rows [begin, end), all pixels.
  void Columns(const GemmTap& tap, int64_t begin, int64_t end, int64_t column,
               const Addresses<4>& at, const float* zeros, float* packed) const {
    const float* x = Floats(at[0]);
    const float* dy = Floats(at[1]) + column;
    const int64_t in = grid_.source_channels, out = grid_.out_channels;
    const int64_t columns = std::min(columns_, out - column);
    float* grad = Floats(at[2]) + (tap.weights * in + begin) * out + column;
    const float* a[2][kMostPixels];
    const float* b[2][kMostPixels];
    const auto find = [&](int64_t first, int turn) {
      const int64_t last = std::min(first + block_, grid_.points());
      grid_.Sources(x + begin, tap, first, last, zeros, a[turn]);
      for (int64_t p = first; p < last; ++p) b[turn][p - first] = dy + p * out;
    };
    find(0, 0);
    int turn = 0;
    for (int64_t p = 0; p < grid_.points(); p += block_, turn ^= 1) {
      const int64_t depth = std::min(block_, grid_.points() - p);
      const bool more = p + 2 * block_ <= grid_.points();  // only whole blocks are fetched
      if (p + depth < grid_.points()) find(p + block_, turn ^ 1);
      Pack(b[turn], depth, columns, packed);
      loops_->multiply_outer({end - begin, columns, depth, a[turn], packed, grad, out, p > 0,
                              more ? a[turn ^ 1] : nullptr, b[turn ^ 1]});
    }
  }

  static void Pack(const float* const* rows, int64_t depth, int64_t columns, float* packed) {
    for (int64_t c = 0; c < columns; c += kGemmOuterGroup) {
      const int64_t width = std::min(kGemmOuterGroup, columns - c);
      float* to = packed + c * depth;
      for (int64_t i = 0; i < depth; ++i) CopyColumns(rows[i] + c, width, to + i * width);
    }
  }

  GemmGrid grid_;
  const GemmLoops* loops_;
  int threads_;
  int64_t block_;  // pixels
  int64_t columns_;
};

}  // namespace

std::shared_ptr<const Kernel> MakeGemmWeightGrad(const GemmConv& conv) {
  const WeightGradPass pass(conv);
  return MakeOwnKernel<4>(kGemmName, pass, pass.scratch_floats() * sizeof(float));
}

}  // namespace parax
