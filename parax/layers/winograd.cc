#include <omp.h>

#include <algorithm>

#include "parax/layers/own_kernel.h"
#include "parax/layers/winograd_internal.h"

namespace parax {
namespace {

constexpr int kPositions = 36;
constexpr int kTile = 4;  // outputs of a tile, each way
constexpr int64_t kFloatsALine = 16;

const WinogradLoops* LoopsFor(const Panels& x, const Panels& y) {
  const Isa isa = CurrentIsa();
  if (isa == Isa::kBaseline) return nullptr;
  // Blocks of 8 channels are less than an AVX-512 vector.
  return isa == Isa::kAvx512 && x.lanes >= 16 && y.lanes >= 16 ? &kWinogradAvx512 : &kWinogradAvx2;
}

// An odd number of cache lines: else what lies this far apart fights for the same few cache sets.
int64_t OddLines(int64_t floats) {
  const int64_t lines = (floats + kFloatsALine - 1) / kFloatsALine;
  return (lines | 1) * kFloatsALine;
}

// The tiles of a micro-batch, image by image, and how many are worked on at once.
struct Tiles {
  int64_t down = 0, across = 0, count = 0, block = 0;

  // At most `most` at once, and no more than a thread's share.
  Tiles(const Panels& y, int64_t most, int threads)
      : down((y.height + kTile - 1) / kTile),
        across((y.width_pixels + kTile - 1) / kTile),
        count(y.images * down * across),
        block(std::min(most, (count + threads - 1) / threads)) {}

  WinogradWindow Output(int64_t tile) const {
    const int64_t image = tile / (down * across), inside = tile % (down * across);
    return {image, inside / across * kTile, inside % across * kTile};
  }
  WinogradWindow Input(int64_t tile, int64_t padding) const {
    WinogradWindow window = Output(tile);
    window.top -= padding;
    window.left -= padding;
    return window;
  }
};

// 36 matrices in scratch memory, `row` floats a row.
struct Transformed {
  int64_t row, stride;
  Transformed(int64_t rows, int64_t columns)
      : row(OddLines(columns)), stride(OddLines(rows * row)) {}
  size_t floats() const { return static_cast<size_t>(kPositions * stride); }
};

// Few enough that a block's transforms stay in the second level cache where channels are few, and
// enough that the transformed weights, read once a block, are worth it where they are many.
int64_t BlockTiles(int64_t in_channels, int64_t out_channels) {
  const int64_t channels = in_channels + out_channels;
  return channels <= 128 ? 24 : channels < 1024 ? 48 : 96;
}

class ConvPass {
 public:
  ConvPass(const WinogradConv& conv, bool rotated)
      : conv_(conv),
        rotated_(rotated),
        loops_(LoopsFor(conv.x, conv.y)),
        tiles_(conv.y, BlockTiles(conv.x.channels, conv.y.channels), conv.threads),
        in_(tiles_.block, conv.x.channels),
        out_(tiles_.block, conv.y.channels),
        weights_stride_(OddLines(conv.x.channels * conv.y.channels)) {}

  size_t scratch_floats() const {
    return static_cast<size_t>(kPositions * weights_stride_) +
           static_cast<size_t>(conv_.threads) * (in_.floats() + out_.floats());
  }

  Outcome Run(const float* x, const float* weights, float* y, const Finish* finish,
              float* u) const {
    const size_t panels = static_cast<size_t>(conv_.y.channels / kWinogradPanel);
    ForPieces(conv_.threads, panels, 1, [&](size_t begin, size_t end) {
      loops_->pack_weights(weights, conv_.x.channels, conv_.y.channels, rotated_,
                           static_cast<int64_t>(begin), static_cast<int64_t>(end), u,
                           weights_stride_);
    });
    float* rest = u + kPositions * weights_stride_;
    ForPieces(conv_.threads, static_cast<size_t>(tiles_.count), 1, [&](size_t begin, size_t end) {
      const auto thread = static_cast<size_t>(omp_get_thread_num());
      float* v = rest + thread * (in_.floats() + out_.floats());
      for (int64_t t = static_cast<int64_t>(begin); t < static_cast<int64_t>(end);
           t += tiles_.block) {
        const int64_t last = std::min(t + tiles_.block, static_cast<int64_t>(end));
        Block(t, last, {x, u, v, y, finish});
      }
    });
    return Outcome::kOk;
  }

 private:
  struct Operands {
    const float *x, *u;
    float *v, *y;
    const Finish* finish;
  };

  void Block(int64_t begin, int64_t end, const Operands& at) const {
    float* v = at.v;
    float* m = v + in_.floats();
    for (int64_t t = begin; t < end; ++t) {
      loops_->gather_input(conv_.x, at.x, tiles_.Input(t, conv_.padding), v + (t - begin) * in_.row,
                           in_.stride);
    }
    for (int p = 0; p < kPositions; ++p) {
      loops_->multiply({end - begin, conv_.y.channels / kWinogradPanel, conv_.x.channels,
                        v + p * in_.stride, in_.row, 1, at.u + p * weights_stride_, kWinogradPanel,
                        conv_.x.channels * kWinogradPanel, m + p * out_.stride, out_.row, false});
    }
    for (int64_t t = begin; t < end; ++t) {
      loops_->scatter_output(m + (t - begin) * out_.row, out_.stride, conv_.y, at.y,
                             tiles_.Output(t), at.finish);
    }
  }

  WinogradConv conv_;
  bool rotated_;
  const WinogradLoops* loops_;
  Tiles tiles_;
  Transformed in_, out_;
  int64_t weights_stride_;
};

class WeightGradPass {
 public:
  explicit WeightGradPass(const WinogradConv& conv)
      : conv_(conv),
        loops_(LoopsFor(conv.x, conv.y)),
        tiles_(conv.y, std::max<int64_t>(48, (conv.x.channels + conv.y.channels) / 4), 1),
        in_(tiles_.block, conv.x.channels),
        out_(tiles_.block, conv.y.channels),
        sums_(conv.x.channels, conv.y.channels) {}

  size_t scratch_floats() const { return in_.floats() + out_.floats() + sums_.floats(); }

  Outcome operator()(const Addresses<4>& at, const RunContext&) const {
    const float* x = Floats(at[0]);
    const float* dy = Floats(at[1]);
    float* grad = Floats(at[2]);
    float* sums = Floats(at[3]);
    float* v = sums + sums_.floats();
    for (int64_t t = 0; t < tiles_.count; t += tiles_.block) {
      AddBlock(t, std::min(t + tiles_.block, tiles_.count), x, dy, v, sums);
    }
    const int64_t plane = conv_.x.channels * conv_.y.channels;
    ForPieces(conv_.threads, static_cast<size_t>(conv_.x.channels), 1,
              [&](size_t begin, size_t end) {
                for (size_t c = begin; c < end; ++c) {
                  const int64_t row = static_cast<int64_t>(c);
                  loops_->unpack_weight_grad(sums + row * sums_.row, sums_.stride, plane,
                                             conv_.y.channels, grad + row * conv_.y.channels);
                }
              });
    return Outcome::kOk;
  }

 private:
  void AddBlock(int64_t first, int64_t last, const float* x, const float* dy, float* v,
                float* sums) const {
    float* d = v + in_.floats();
    ForPieces(conv_.threads, static_cast<size_t>(last - first), 1, [&](size_t begin, size_t end) {
      for (int64_t i = static_cast<int64_t>(begin); i < static_cast<int64_t>(end); ++i) {
        loops_->gather_input(conv_.x, x, tiles_.Input(first + i, conv_.padding), v + i * in_.row,
                             in_.stride);
        loops_->gather_output_grad(conv_.y, dy, tiles_.Output(first + i), d + i * out_.row,
                                   out_.stride);
      }
    });
    ForPieces(conv_.threads, kPositions, 1, [&](size_t begin, size_t end) {
      for (size_t p = begin; p < end; ++p) {
        const auto position = static_cast<int64_t>(p);
        loops_->multiply({conv_.x.channels, conv_.y.channels / kWinogradPanel, last - first,
                          v + position * in_.stride, 1, in_.row, d + position * out_.stride,
                          out_.row, kWinogradPanel, sums + position * sums_.stride, sums_.row,
                          first > 0});
      }
    });
  }

  WinogradConv conv_;
  const WinogradLoops* loops_;
  Tiles tiles_;
  Transformed in_, out_, sums_;
};

}  // namespace

bool WinogradWorks(int64_t in_channels, int64_t out_channels) {
  return in_channels % kWinogradPanel == 0 && out_channels % kWinogradPanel == 0 &&
         LoopsFor({}, {}) != nullptr;
}

std::shared_ptr<const Kernel> MakeWinogradConv(const WinogradConv& conv, bool rotated) {
  return MakeFinished(kWinogradName, ConvPass(conv, rotated), conv.finish);
}

std::shared_ptr<const Kernel> MakeWinogradWeightGrad(const WinogradConv& conv) {
  const WeightGradPass pass(conv);
  return MakeOwnKernel<4>(kWinogradName, pass, pass.scratch_floats() * sizeof(float));
}

}  // namespace parax
