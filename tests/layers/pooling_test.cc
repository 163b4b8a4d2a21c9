#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/layers/harness.h"

namespace parax::testing {
namespace {

// Pooling by PyTorch's definition; `dx` for the run's output gradient.
struct Reference {
  Values y, dx;
};
Reference Naive(const LayerRun& run, const Dims& in, const Dims& out, const PoolOptions& o,
                bool max) {
  Reference r;
  r.y.resize(static_cast<size_t>(Product(out)));
  r.dx.assign(static_cast<size_t>(Product(in)), 0);
  const Values& x = run.inputs[0];
  for (int64_t plane = 0; plane < in[0] * in[1]; ++plane) {
    for (int64_t oy = 0; oy < out[2]; ++oy) {
      for (int64_t ox = 0; ox < out[3]; ++ox) {
        const size_t at = static_cast<size_t>((plane * out[2] + oy) * out[3] + ox);
        const int64_t y0 = oy * o.stride - o.padding, x0 = ox * o.stride - o.padding;
        const int64_t y1 = std::min(y0 + o.kernel, in[2] + o.padding);
        const int64_t x1 = std::min(x0 + o.kernel, in[3] + o.padding);
        std::vector<size_t> cells;
        for (int64_t iy = std::max<int64_t>(y0, 0); iy < std::min(y1, in[2]); ++iy) {
          for (int64_t ix = std::max<int64_t>(x0, 0); ix < std::min(x1, in[3]); ++ix) {
            cells.push_back(static_cast<size_t>((plane * in[2] + iy) * in[3] + ix));
          }
        }
        if (max) {
          const size_t best = *std::max_element(cells.begin(), cells.end(),
                                                [&](size_t a, size_t b) { return x[a] < x[b]; });
          r.y[at] = x[best];
          r.dx[best] += run.output_grad[at];
        } else {
          const double divisor = o.count_include_pad ? static_cast<double>((y1 - y0) * (x1 - x0))
                                                     : static_cast<double>(cells.size());
          double sum = 0;
          for (const size_t c : cells) {
            sum += x[c];
            r.dx[c] += static_cast<float>(run.output_grad[at] / divisor);
          }
          r.y[at] = static_cast<float>(sum / divisor);
        }
      }
    }
  }
  return r;
}

std::vector<PoolOptions> AllOptions() {
  std::vector<PoolOptions> all;
  for (const auto& [kernel, stride, padding] :
       {std::array<int64_t, 3>{2, 2, 0}, {3, 2, 1}, {3, 1, 1}, {2, 3, 0}, {5, 3, 2}, {1, 2, 0}}) {
    for (const bool ceil : {false, true}) {
      for (const bool include : {false, true}) {
        all.push_back({kernel, stride, padding, ceil, include});
      }
    }
  }
  return all;
}

TEST(Pooling, MatchesDefinition) {
  for (const Dims& dims : {Dims{2, 3, 7, 5}, Dims{1, 17, 5, 9}, Dims{2, 32, 6, 6}}) {
    for (const PoolOptions& options : AllOptions()) {
      for (const bool max : {false, true}) {
        for (const int threads : {1, 2}) {
          const LayerPtr layer = max ? MaxPool(options) : AvgPool(options);
          LayerRun run(layer, Request({dims}, Mode::kTraining, false, threads));
          ASSERT_EQ(run.Forward(), Outcome::kOk);
          ASSERT_EQ(run.Backward(), Outcome::kOk);
          const Reference r = Naive(run, dims, layer->OutputDims({dims}), options, max);
          ExpectNear(run.output(), r.y, 1e-6, "output");
          ExpectNear(run.input_grad(0), r.dx, 2e-6, "input gradient");
        }
      }
    }
  }
}

// torch.nn.MaxPool2d(3, 2, padding=1, ceil_mode=True) on 6 pixels gives 4, on 5 pixels 3.
TEST(Pooling, CeilModeSizes) {
  const LayerPtr layer = MaxPool({.kernel = 3, .stride = 2, .padding = 1, .ceil_mode = true});
  EXPECT_EQ(layer->OutputDims({{1, 1, 6, 5}}), (Dims{1, 1, 4, 3}));
  // The last window would begin in the padding behind the image: it is dropped.
  const LayerPtr gap = MaxPool({.kernel = 1, .stride = 3, .padding = 0, .ceil_mode = true});
  EXPECT_EQ(gap->OutputDims({{1, 1, 5, 5}}), (Dims{1, 1, 2, 2}));
  EXPECT_THROW(MaxPool({.kernel = 3, .stride = 1, .padding = 2}), std::exception);
  EXPECT_THROW(layer->OutputDims({{1, 1, 0, 0}}), std::exception);
}

// Case D: ones only at the first maximum of each window, 0 in the uncovered last row and column.
TEST(Pooling, TiesGoToTheFirstMaximum) {
  LayerRun run(MaxPool({}), Request({{1, 1, 5, 5}}));
  run.inputs[0] = {1, 1, 2, 3, 9,  //
                   1, 1, 4, 4, 9,  //
                   0, 5, 7, 7, 9,  //
                   5, 5, 7, 7, 9,  //
                   9, 9, 9, 9, 9};
  std::fill(run.output_grad.begin(), run.output_grad.end(), 1.0f);
  ASSERT_EQ(run.Forward(), Outcome::kOk);
  ASSERT_EQ(run.Backward(), Outcome::kOk);
  EXPECT_EQ(run.output(), (Values{1, 4, 5, 7}));
  const Values expected = {1, 0, 0, 0, 0,  //
                           0, 0, 1, 0, 0,  //
                           0, 1, 1, 0, 0,  //
                           0, 0, 0, 0, 0,  //
                           0, 0, 0, 0, 0};
  EXPECT_EQ(run.input_grad(0), expected);
}

TEST(Pooling, MaximumKeepsNaNAndMinusInfinity) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float low = -std::numeric_limits<float>::infinity();
  for (const Mode mode : {Mode::kTraining, Mode::kEvaluation}) {
    LayerRun run(MaxPool({}), Request({{1, 1, 2, 4}}, mode));
    run.inputs[0] = {1, nan, low, low, 2, 3, low, low};
    ASSERT_EQ(run.Forward(), Outcome::kOk);
    EXPECT_TRUE(std::isnan(run.output()[0]));
    EXPECT_EQ(run.output()[1], low);
  }
}

TEST(Pooling, GlobalAverage) {
  for (const Dims& dims : {Dims{2, 3, 7, 5}, Dims{3, 40, 4, 4}, Dims{1, 64, 1, 1}}) {
    LayerRun run(GlobalAvgPool(), Request({dims}));
    ASSERT_EQ(run.Forward(), Outcome::kOk);
    ASSERT_EQ(run.Backward(), Outcome::kOk);
    const size_t pixels = static_cast<size_t>(dims[2] * dims[3]);
    Values y(static_cast<size_t>(dims[0] * dims[1])), dx(run.inputs[0].size());
    for (size_t i = 0; i < dx.size(); ++i) {
      y[i / pixels] += run.inputs[0][i] / static_cast<float>(pixels);
      dx[i] = run.output_grad[i / pixels] / static_cast<float>(pixels);
    }
    ExpectNear(run.output(), y, 1e-6, "output");
    ExpectNear(run.input_grad(0), dx, 1e-6, "input gradient");
  }
}

TEST(Pooling, Jacobian) {
  for (const LayerPtr& layer : {MaxPool({3, 2, 1}), AvgPool({3, 2, 1}), GlobalAvgPool()}) {
    LayerRun run(layer, Request({{2, 3, 6, 5}}));
    run.inputs[0] = SpreadValues(run.inputs[0].size(), 3, 0.05);
    ExpectGradientsMatch(run);
  }
}

}  // namespace
}  // namespace parax::testing
