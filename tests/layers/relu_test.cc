#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "parax/layers/onednn_internal.h"
#include "tests/layers/harness.h"

namespace parax::testing {
namespace {

TEST(Relu, MatchesDefinitionOnOddShapes) {
  for (const Dims& dims : {Dims{1, 1, 1, 1}, Dims{3, 5, 7, 3}, Dims{2, 17}, Dims{1, 70, 13, 1}}) {
    LayerRun run(Relu(), Request({dims}));
    ASSERT_EQ(run.Forward(), Outcome::kOk);
    ASSERT_EQ(run.Backward(), Outcome::kOk);
    Values y = run.inputs[0], dx = run.output_grad;
    for (size_t i = 0; i < y.size(); ++i) {
      if (y[i] < 0) y[i] = dx[i] = 0;
    }
    ExpectSameBits(run.output(), y, "output");
    ExpectSameBits(run.input_grad(0), dx, "input gradient");
  }
}

TEST(Relu, Jacobian) {
  LayerRun run(Relu(), Request({{2, 3, 5, 7}}));
  run.inputs[0] = SpreadValues(run.inputs[0].size(), 1, 0.05);
  ExpectGradientsMatch(run);
}

TEST(Relu, RunsInPlaceAndOnTwoThreads) {
  const Dims dims = {3, 33, 7, 9};
  LayerRun plain(Relu(), Request({dims}));
  LayerRun shared(Relu(), Request({dims}, Mode::kTraining, false, 2), /*in_place=*/true);
  for (LayerRun* run : {&plain, &shared}) {
    ASSERT_EQ(run->Forward(), Outcome::kOk);
    ASSERT_EQ(run->Backward(), Outcome::kOk);
  }
  ExpectSameBits(shared.output(), plain.output(), "output");
  ExpectSameBits(shared.input_grad(0), plain.input_grad(0), "input gradient");
}

// A diverged network must be seen: NaN goes through, in both directions.
TEST(Relu, KeepsNaN) {
  LayerRun run(Relu(), Request({{1, 40}}));
  run.inputs[0][5] = run.inputs[0][39] = std::numeric_limits<float>::quiet_NaN();
  run.output_grad[7] = std::numeric_limits<float>::quiet_NaN();
  run.inputs[0][7] = 1;
  ASSERT_EQ(run.Forward(), Outcome::kOk);
  ASSERT_EQ(run.Backward(), Outcome::kOk);
  EXPECT_TRUE(std::isnan(run.output()[5]) && std::isnan(run.output()[39]));
  EXPECT_EQ(run.input_grad(0)[5], run.output_grad[5]);
  EXPECT_TRUE(std::isnan(run.input_grad(0)[7]));
}

TEST(Relu, EvaluationHasNoBackward) {
  LayerRun run(Relu(), Request({{1, 40}}, Mode::kEvaluation));
  EXPECT_TRUE(run.compiled().backward.empty());
}

// 20 channels in blocks of 16: results as without blocks, and the padding stays zero.
TEST(Relu, KeepsPaddingZero) {
  const Dims dims = {2, 20, 3, 5};
  CompileRequest request = Request({dims}, Mode::kTraining, /*blocked=*/true);
  for (Layout& layout : request.inputs)
    layout = LayoutOf({dims, dnnl::memory::data_type::f32, dnnl::memory::format_tag::nChw16c});
  LayerRun blocked(Relu(), request), plain(Relu(), Request({dims}));
  ASSERT_TRUE(blocked.compiled().output.padded());
  for (LayerRun* run : {&blocked, &plain}) {
    ASSERT_EQ(run->Forward(), Outcome::kOk);
    ASSERT_EQ(run->Backward(), Outcome::kOk);
  }
  ExpectSameBits(blocked.output(), plain.output(), "output");
  ExpectSameBits(blocked.input_grad(0), plain.input_grad(0), "input gradient");
}

}  // namespace
}  // namespace parax::testing
