#include <algorithm>

#include "parax/layers/gemm_pixels_internal.h"
#include "parax/layers/transpose_internal.h"

namespace parax {
namespace {

constexpr int64_t kBlockRows = 120;   // of a grid, worked on at once
constexpr int64_t kBlockDepth = 512;  // so that a tile's part of the left matrix stays in L1
constexpr int64_t kTileRows = 6;

int64_t Pieces(int64_t count, int64_t size) { return (count + size - 1) / size; }

// How many pieces a product's rows and columns are cut into, one of rows x columns a thread.
struct Cut {
  int64_t rows, columns;
};

// The cut whose largest piece is the least work; of equals, the one that reads the least.
Cut BestCut(int64_t rows, int64_t columns, int64_t threads) {
  const int64_t tiles = Pieces(rows, kTileRows), groups = Pieces(columns, kGemmGroup);
  Cut best{threads, 1};
  int64_t least_work = INT64_MAX, least_reads = INT64_MAX;
  for (int64_t across = 1; across <= std::min(threads, groups); ++across) {
    const int64_t down = threads / across;
    const int64_t piece_tiles = Pieces(tiles, down), piece_groups = Pieces(groups, across);
    const int64_t work = piece_tiles * piece_groups;
    const int64_t reads = piece_tiles * kTileRows + piece_groups * kGemmGroup;
    if (work > least_work || (work == least_work && reads >= least_reads)) continue;
    best = {down, across};
    least_work = work;
    least_reads = reads;
  }
  return best;
}

// y (the grids' destinations) = x (their source) * weights [tap][in][out], or with `turned` times
// the transposes of [tap][out][in].
class RowsPass {
 public:
  RowsPass(std::vector<GemmGrid> grids, const GemmConv& conv, bool turned)
      : grids_(std::move(grids)),
        loops_(GemmLoopsHere()),
        in_(grids_[0].source_channels),
        out_(grids_[0].out_channels),
        taps_(conv.kernel * conv.kernel),
        turned_(turned),
        packed_(conv.packed || (!turned && out_ <= kGemmGroup)),  // a single group is packed
        threads_(conv.threads) {
    for (const GemmGrid& grid : grids_) cuts_.push_back(BestCut(grid.points(), out_, threads_));
  }

  // A row of zeros (the border), and the packed weights.
  size_t scratch_floats() const {
    return static_cast<size_t>(in_ + (packed_ ? 0 : taps_ * in_ * out_));
  }

  Outcome Run(const float* x, const float* weights, float* y, const Finish* finish,
              float* scratch) const {
    float* zeros = scratch;
    std::fill_n(zeros, in_, 0.0f);
    if (!packed_) {
      float* packed = scratch + in_;
      Pack(weights, packed);
      weights = packed;
    }
    for (size_t g = 0; g < grids_.size(); ++g) {
      const GemmGrid& grid = grids_[g];
      const Cut cut = cuts_[g];
      ForPieces(threads_, static_cast<size_t>(cut.rows * cut.columns), 1,
                [&](size_t begin, size_t end) {
                  for (size_t piece = begin; piece < end; ++piece)
                    Range(grid, cut, static_cast<int64_t>(piece), {x, weights, zeros, y, finish});
                });
    }
    return Outcome::kOk;
  }

 private:
  struct Operands {
    const float *x, *packed, *zeros;
    float* y;
    const Finish* finish;
  };

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

  // One piece of the cut: rows in whole tiles, columns in whole groups.
  void Range(const GemmGrid& grid, const Cut& cut, int64_t piece, const Operands& at) const {
    const auto share = [](int64_t count, int64_t unit, int64_t pieces, int64_t number) {
      return std::min(count, Pieces(count, unit) * number / pieces * unit);
    };
    const int64_t down = piece / cut.columns, across = piece % cut.columns;
    const int64_t begin = share(grid.points(), kTileRows, cut.rows, down);
    const int64_t end = share(grid.points(), kTileRows, cut.rows, down + 1);
    const int64_t first_column = share(out_, kGemmGroup, cut.columns, across);
    const int64_t last_column = share(out_, kGemmGroup, cut.columns, across + 1);
    float* c[kBlockRows];
    const float* a[2][kBlockRows];
    const bool one_tap = grid.taps.size() == 1;
    for (int64_t first = begin, turn = 0; first < end; first += kBlockRows, turn ^= 1) {
      const int64_t last = std::min(first + kBlockRows, end);
      grid.Destinations(at.y, first, last, c);
      if (grid.taps.empty())
        for (int64_t r = 0; r < last - first; ++r)
          std::fill(c[r] + first_column, c[r] + last_column, 0.0f);
      bool started = false;
      for (const GemmTap& tap : grid.taps) {
        const float** rows_of_tap = a[turn];
        const bool known = one_tap && first > begin;
        if (!known) Sources(grid, at, tap, first, last, rows_of_tap);
        const float** next = one_tap && last < end ? a[turn ^ 1] : nullptr;
        if (next != nullptr) Sources(grid, at, tap, last, std::min(last + kBlockRows, end), next);
        for (int64_t k = 0; k < in_; k += kBlockDepth) {
          const int64_t depth = std::min(kBlockDepth, in_ - k);
          const bool ends = &tap == &grid.taps.back() && k + depth == in_;
          loops_->multiply_rows({last - first, out_, first_column, last_column, depth, rows_of_tap,
                                 k, at.packed, taps_ * in_, tap.weights * in_ + k, c, started, next,
                                 ends ? at.finish : nullptr});
          started = true;
        }
      }
    }
  }

  // Addresses of points [first, last), filled up with the border.
  static void Sources(const GemmGrid& grid, const Operands& at, const GemmTap& tap, int64_t first,
                      int64_t last, const float** a) {
    grid.Sources(at.x, tap, first, last, at.zeros, a);
    std::fill(a + (last - first), a + kBlockRows, at.zeros);
  }

  std::vector<GemmGrid> grids_;
  std::vector<Cut> cuts_;  // of each
  const GemmLoops* loops_;
  int64_t in_, out_, taps_;
  bool turned_, packed_;
  int threads_;
};

}  // namespace

std::shared_ptr<const Kernel> MakeGemmForward(const GemmConv& conv) {
  const RowsPass pass({ForwardGrid(conv)}, conv, false);
  return MakeFinished(kGemmName, pass, conv.finish);
}

bool GemmFinishesInPlace(const GemmConv& conv) {
  return conv.kernel == 1 && conv.in_channels <= kBlockDepth;
}

std::shared_ptr<const Kernel> MakeGemmInputGrad(const GemmConv& conv) {
  return MakeFinished(kGemmName, RowsPass(InputGrids(conv), conv, true), std::nullopt);
}

}  // namespace parax
