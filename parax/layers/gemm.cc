#include <omp.h>

#include <algorithm>

#include "parax/layers/gemm_pixels_internal.h"
#include "parax/layers/own_kernel.h"
#include "parax/layers/transpose_internal.h"

namespace parax {
namespace {

constexpr int64_t kBlockRows = 120;   // of a grid, worked on at once
constexpr int64_t kBlockDepth = 512;  // so that a tile's part of the left matrix stays in L1

// y (the grids' destinations) = x (their source) * weights [tap][in][out], or with `turned` times
// the transposes of [tap][out][in].
class RowsPass {
 public:
  RowsPass(std::vector<GemmGrid> grids, int64_t taps, bool turned, int threads)
      : grids_(std::move(grids)),
        loops_(GemmLoopsHere()),
        in_(grids_[0].source_channels),
        out_(grids_[0].out_channels),
        taps_(taps),
        turned_(turned),
        threads_(threads) {}

  // Packed weights, a row of zeros (the border), and for each thread a row to throw away.
  size_t scratch_floats() const {
    return static_cast<size_t>(taps_ * in_ * out_ + in_ + threads_ * out_);
  }

  Outcome operator()(const Addresses<4>& at, const RunContext&) const {
    const float* x = Floats(at[0]);
    float* y = Floats(at[2]);
    float* packed = Floats(at[3]);
    Pack(Floats(at[1]), packed);
    float* zeros = packed + taps_ * in_ * out_;
    std::fill_n(zeros, in_, 0.0f);
    for (const GemmGrid& grid : grids_) {
      ForPieces(threads_, static_cast<size_t>(grid.points()), kBlockRows,
                [&](size_t begin, size_t end) {
                  float* waste = zeros + in_ + omp_get_thread_num() * out_;
                  Range(grid, static_cast<int64_t>(begin), static_cast<int64_t>(end), x, packed,
                        zeros, waste, y);
                });
    }
    return Outcome::kOk;
  }

 private:
  // As GemmRows wants the right matrix, with the taps below each other.
  void Pack(const float* weights, float* packed) const {
    const int64_t depth = taps_ * in_;
    ForPieces(threads_, static_cast<size_t>(out_), kGemmGroup, [&](size_t begin, size_t end) {
      for (int64_t c = static_cast<int64_t>(begin); c < static_cast<int64_t>(end);
           c += kGemmGroup) {
        const int64_t width = std::min(kGemmGroup, out_ - c);
        float* to = packed + c * depth;
        if (turned_) {
          for (int64_t tap = 0; tap < taps_; ++tap)
            Transpose(weights + (tap * out_ + c) * in_, in_, width, in_, to + tap * in_ * width,
                      width);
        } else {
          for (int64_t k = 0; k < depth; ++k)
            CopyColumns(weights + k * out_ + c, width, to + k * width);
        }
      }
    });
  }

  void Range(const GemmGrid& grid, int64_t begin, int64_t end, const float* x, const float* packed,
             const float* zeros, float* waste, float* y) const {
    float* c[kBlockRows];
    const float* a[2][kBlockRows];
    const bool one_tap = grid.taps.size() == 1;
    for (int64_t first = begin, turn = 0; first < end; first += kBlockRows, turn ^= 1) {
      const int64_t last = std::min(first + kBlockRows, end);
      const int64_t rows = (last - first + kGemmRowUnit - 1) / kGemmRowUnit * kGemmRowUnit;
      grid.Destinations(y, first, last, c);
      std::fill(c + (last - first), c + rows, waste);
      if (grid.taps.empty())
        for (int64_t r = 0; r < last - first; ++r) std::fill_n(c[r], out_, 0.0f);
      bool started = false;
      for (const GemmTap& tap : grid.taps) {
        const float** rows_of_tap = a[turn];
        const bool known = one_tap && first > begin;
        if (!known) Sources(grid, x, tap, first, last, rows, zeros, rows_of_tap);
        const float** next = one_tap && last < end ? a[turn ^ 1] : nullptr;
        if (next != nullptr)
          Sources(grid, x, tap, last, std::min(last + kBlockRows, end), kBlockRows, zeros, next);
        for (int64_t k = 0; k < in_; k += kBlockDepth) {
          loops_->multiply_rows({rows, out_, std::min(kBlockDepth, in_ - k), rows_of_tap, k, packed,
                                 taps_ * in_, tap.weights * in_ + k, c, started, next});
          started = true;
        }
      }
    }
  }

  // Addresses of points [first, last), filled up to `rows`.
  static void Sources(const GemmGrid& grid, const float* x, const GemmTap& tap, int64_t first,
                      int64_t last, int64_t rows, const float* zeros, const float** a) {
    grid.Sources(x, tap, first, last, zeros, a);
    std::fill(a + (last - first), a + rows, zeros);
  }

  std::vector<GemmGrid> grids_;
  const GemmLoops* loops_;
  int64_t in_, out_, taps_;
  bool turned_;
  int threads_;
};

std::shared_ptr<const Kernel> Make(const RowsPass& pass) {
  return MakeOwnKernel<4>(kGemmName, pass, pass.scratch_floats() * sizeof(float));
}

}  // namespace

std::shared_ptr<const Kernel> MakeGemmForward(const GemmConv& conv) {
  return Make(RowsPass({ForwardGrid(conv)}, conv.kernel * conv.kernel, false, conv.threads));
}

std::shared_ptr<const Kernel> MakeGemmInputGrad(const GemmConv& conv) {
  return Make(RowsPass(InputGrids(conv), conv.kernel * conv.kernel, true, conv.threads));
}

}  // namespace parax
