#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "parax/base/isa.h"
#include "parax/layers/onednn_internal.h"
#include "tests/layers/harness.h"

namespace parax::testing {
namespace {

struct Reference {
  Values y, dx, dresidual, dweight, dbias;
  std::vector<double> mean, variance;
};

// Batch norm by its definition, in double (torch.nn.BatchNorm2d), plus the second input if there is
// one; `fixed`: mean and variance given.
Reference Naive(const LayerRun& run, const Dims& d, bool relu, bool fixed) {
  const auto channels = static_cast<size_t>(d[1]);
  const auto pixels = static_cast<size_t>(d[2] * d[3]);
  const double count = static_cast<double>(static_cast<size_t>(d[0]) * pixels);
  const Values& x = run.inputs[0];
  Reference r;
  r.y = r.dx = r.dresidual = x;
  r.dweight.resize(channels);
  r.dbias.resize(channels);
  for (size_t c = 0; c < channels; ++c) {
    const auto each = [&](auto body) {
      for (size_t n = 0; n < static_cast<size_t>(d[0]); ++n) {
        for (size_t p = 0; p < pixels; ++p) body((n * channels + c) * pixels + p);
      }
    };
    double mean = 0, variance = 0;
    each([&](size_t i) { mean += x[i] / count; });
    each([&](size_t i) { variance += (x[i] - mean) * (x[i] - mean) / count; });
    if (fixed) {
      mean = run.states[0][c];
      variance = run.states[1][c];
    }
    r.mean.push_back(mean);
    r.variance.push_back(variance);
    const double inverse = 1 / std::sqrt(variance + 1e-5);
    double sum = 0, dot = 0;
    const auto output = [&](size_t i) {
      const double residual = run.inputs.size() > 1 ? static_cast<double>(run.inputs[1][i]) : 0.0;
      return (x[i] - mean) * inverse * run.params[0][c] + run.params[1][c] + residual;
    };
    const auto gradient = [&](size_t i) {
      return relu && output(i) <= 0 ? 0.0 : static_cast<double>(run.output_grad[i]);
    };
    each([&](size_t i) {
      r.y[i] = static_cast<float>(relu ? std::max(0.0, output(i)) : output(i));
      r.dresidual[i] = static_cast<float>(gradient(i));
      sum += gradient(i);
      dot += gradient(i) * (x[i] - mean) * inverse;
    });
    r.dweight[c] = static_cast<float>(dot);
    r.dbias[c] = static_cast<float>(sum);
    each([&](size_t i) {
      const double xhat = (x[i] - mean) * inverse;
      const double centred = fixed ? gradient(i) : gradient(i) - sum / count - xhat * dot / count;
      r.dx[i] = static_cast<float>(run.params[0][c] * inverse * centred);
    });
  }
  return r;
}

// Channels last, or in blocks of 16 or 8.
CompileRequest RequestIn(const std::vector<Dims>& inputs, int block, int threads) {
  CompileRequest request = Request(inputs, Mode::kTraining, block > 0, threads);
  using Tag = dnnl::memory::format_tag;
  for (size_t i = 0; i < inputs.size() && block > 0; ++i) {
    request.inputs[i] = LayoutOf(
        {inputs[i], dnnl::memory::data_type::f32, block == 16 ? Tag::nChw16c : Tag::nChw8c});
  }
  return request;
}

void Prepare(LayerRun& run) {
  run.params[0] = RandomValues(run.params[0].size(), 11, 0.5, 1.5);
  run.params[1] = RandomValues(run.params[1].size(), 12);
  run.states[0] = RandomValues(run.states[0].size(), 13);
  run.states[1] = RandomValues(run.states[1].size(), 14, 0.5, 2);
}

TEST(BatchNorm, MatchesDefinition) {
  for (const Dims& dims : {Dims{2, 1, 3, 5}, Dims{3, 17, 5, 7}, Dims{4, 32, 9, 8},
                           Dims{1, 64, 4, 4}, Dims{5, 24, 40, 13}}) {
    for (const int block : {0, 8, 16}) {
      for (const bool relu : {false, true}) {
        for (const int threads : {1, 2, 3}) {
          LayerRun run(BatchNorm({.channels = dims[1], .relu = relu}),
                       RequestIn({dims}, block, threads));
          Prepare(run);
          ASSERT_EQ(run.Forward(), Outcome::kOk);
          ASSERT_EQ(run.Backward(), Outcome::kOk);
          const Reference r = Naive(run, dims, relu, false);
          ExpectNear(run.output(), r.y, 2e-6, "output");
          ExpectNear(run.input_grad(0), r.dx, 2e-5, "input gradient");
          ExpectNear(run.param_grad(0), r.dweight, 1e-4, "weight gradient");
          ExpectNear(run.param_grad(1), r.dbias, 1e-4, "bias gradient");
          for (size_t c = 0; c < r.mean.size(); ++c) {
            EXPECT_NEAR(run.saved(0)[c], r.mean[c], 1e-6);
            EXPECT_NEAR(run.saved(1)[c], r.variance[c], 1e-6);
          }
          EXPECT_EQ(run.compiled().statistics_count,
                    static_cast<double>(dims[0] * dims[2] * dims[3]));
        }
      }
    }
  }
}

TEST(BatchNorm, AddsTheResidual) {
  for (const Dims& dims : {Dims{3, 17, 5, 7}, Dims{2, 100, 11, 9}, Dims{5, 32, 40, 13}}) {
    for (const int block : {0, 8, 16}) {
      for (const bool relu : {false, true}) {
        for (const bool in_place : {false, true}) {
          LayerRun run(BatchNorm({.channels = dims[1], .add = true, .relu = relu}),
                       RequestIn({dims, dims}, block, in_place ? 2 : 1), in_place);
          Prepare(run);
          ASSERT_EQ(run.Forward(), Outcome::kOk);
          const Reference r = Naive(run, dims, relu, false);
          ExpectNear(run.output(), r.y, 2e-6, "output");
          ASSERT_EQ(run.Backward(), Outcome::kOk);
          ExpectNear(run.input_grad(0), r.dx, 2e-5, "input gradient");
          ExpectNear(run.input_grad(1), r.dresidual, 0, "residual's gradient");
          ExpectNear(run.param_grad(0), r.dweight, 1e-4, "weight gradient");
          ExpectNear(run.param_grad(1), r.dbias, 1e-4, "bias gradient");
        }
      }
    }
  }
}

TEST(BatchNorm, AddsTheResidualWhateverGradientsAreWanted) {
  const Dims dims = {3, 17, 5, 7};
  for (int wanted = 1; wanted < 8; ++wanted) {
    for (const bool frozen : {false, true}) {
      CompileRequest request = Request({dims, dims});
      request.need_input_grad = {(wanted & 1) != 0, (wanted & 2) != 0};
      request.need_param_grad = (wanted & 4) != 0;
      LayerRun run(BatchNorm({.channels = 17, .add = true, .relu = true, .frozen = frozen}),
                   request);
      Prepare(run);
      ASSERT_EQ(run.Forward(), Outcome::kOk);
      ASSERT_EQ(run.Backward(), Outcome::kOk);
      const Reference r = Naive(run, dims, true, frozen || !request.need_param_grad);
      ExpectNear(run.output(), r.y, 2e-6, "output");
      if (wanted & 1) ExpectNear(run.input_grad(0), r.dx, 2e-5, "input gradient");
      if (wanted & 2) ExpectNear(run.input_grad(1), r.dresidual, 0, "residual's gradient");
      if (wanted & 4) ExpectNear(run.param_grad(0), r.dweight, 1e-4, "weight gradient");
    }
  }
  LayerRun evaluation(BatchNorm({.channels = 17, .add = true, .relu = true}),
                      Request({dims, dims}, Mode::kEvaluation), /*in_place=*/true);
  Prepare(evaluation);
  const Reference r = Naive(evaluation, dims, true, true);
  ASSERT_EQ(evaluation.Forward(), Outcome::kOk);
  ExpectNear(evaluation.output(), r.y, 2e-6, "output");
}

TEST(BatchNorm, FrozenUsesRunningStatistics) {
  const Dims dims = {3, 17, 5, 7};
  for (const bool train_params : {false, true}) {
    CompileRequest request = Request({dims});
    request.need_param_grad = train_params;
    LayerRun run(BatchNorm({.channels = 17, .relu = true, .frozen = true}), request);
    Prepare(run);
    ASSERT_EQ(run.Forward(), Outcome::kOk);
    ASSERT_EQ(run.Backward(), Outcome::kOk);
    const Reference r = Naive(run, dims, true, true);
    ExpectNear(run.output(), r.y, 2e-6, "output");
    ExpectNear(run.input_grad(0), r.dx, 2e-5, "input gradient");
    EXPECT_EQ(run.compiled().saved_mean, -1);
    if (!train_params) continue;
    ExpectNear(run.param_grad(0), r.dweight, 1e-4, "weight gradient");
    ExpectNear(run.param_grad(1), r.dbias, 1e-4, "bias gradient");
  }
}

TEST(BatchNorm, EvaluationUsesRunningStatisticsAlsoInPlace) {
  const Dims dims = {3, 17, 5, 7};
  for (const bool in_place : {false, true}) {
    LayerRun run(BatchNorm({.channels = 17}), Request({dims}, Mode::kEvaluation), in_place);
    Prepare(run);
    const Reference r = Naive(run, dims, false, true);
    ASSERT_EQ(run.Forward(), Outcome::kOk);
    ExpectNear(run.output(), r.y, 2e-6, "output");
  }
}

TEST(BatchNorm, Jacobian) {
  LayerRun run(BatchNorm({.channels = 3}), Request({{4, 3, 3, 5}}));
  Prepare(run);
  ExpectGradientsMatch(run);
}

TEST(BatchNorm, JacobianWithResidual) {
  const Dims dims = {4, 3, 3, 5};
  LayerRun run(BatchNorm({.channels = 3, .add = true}), Request({dims, dims}));
  Prepare(run);
  ExpectGradientsMatch(run);
}

// A block's variance is taken about the mean of its first rows: these are far off.
TEST(BatchNorm, FirstRowsFarFromTheRestDoNotCancel) {
  const Dims dims = {2, 3, 20, 20};
  LayerRun run(BatchNorm({.channels = 3}), Request({dims}));
  Prepare(run);
  for (size_t i = 0; i < run.inputs[0].size(); ++i) {
    run.inputs[0][i] += i % 400 < 8 ? 5000.0f : 40000.0f;
  }
  ASSERT_EQ(run.Forward(), Outcome::kOk);
  const Reference r = Naive(run, dims, false, false);
  for (size_t c = 0; c < 3; ++c) {
    EXPECT_NEAR(run.saved(0)[c], r.mean[c], 1e-6 * r.mean[c]);
    EXPECT_NEAR(run.saved(1)[c], r.variance[c], 1e-5 * r.variance[c]);
  }
}

// Case E: variance must not cancel where the mean is large.
TEST(BatchNorm, LargeMeanDoesNotCancel) {
  LayerRun run(BatchNorm({.channels = 1}), Request({{1, 1, 2, 2}}));
  run.inputs[0] = {40000, 40001, 40002, 40003};
  run.params = {{1}, {0}};
  ASSERT_EQ(run.Forward(), Outcome::kOk);
  const Values expected = {-1.34164f, -0.44721f, 0.44721f, 1.34164f};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(run.output()[i], expected[i], 1e-5);

  LayerRun constant(BatchNorm({.channels = 1}), Request({{1, 1, 16, 16}}));
  std::fill(constant.inputs[0].begin(), constant.inputs[0].end(), 1234.0f);
  constant.params = {{1}, {0}};
  ASSERT_EQ(constant.Forward(), Outcome::kOk);
  for (const float y : constant.output()) EXPECT_EQ(y, 0);
}

TEST(BatchNorm, KeepsNaN) {
  LayerRun run(BatchNorm({.channels = 2, .relu = true}), Request({{1, 2, 3, 3}}));
  Prepare(run);
  run.inputs[0][4] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_EQ(run.Forward(), Outcome::kOk);
  EXPECT_TRUE(std::isnan(run.output()[4]));
}

TEST(BatchNorm, SameBitsAtEveryInstructionSet) {
  for (const bool add : {false, true}) {
    const Dims dims = {3, 107, 9, 11};
    std::vector<Values> first;
    for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
      const IsaLimit limit(isa);
      LayerRun run(BatchNorm({.channels = 107, .add = add, .relu = true}),
                   Request(std::vector<Dims>(add ? 2 : 1, dims)));
      Prepare(run);
      ASSERT_EQ(run.Forward(), Outcome::kOk);
      ASSERT_EQ(run.Backward(), Outcome::kOk);
      const std::vector<Values> all = {run.output(), run.input_grad(0), run.param_grad(0),
                                       run.param_grad(1)};
      if (first.empty()) first = all;
      for (size_t i = 0; i < all.size(); ++i) ExpectSameBits(all[i], first[i], "result");
    }
  }
}

}  // namespace
}  // namespace parax::testing
