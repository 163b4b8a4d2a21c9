#include <gtest/gtest.h>

#include "parax/base/error.h"
#include "parax/layers/onednn_internal.h"
#include "tests/layers/harness.h"

namespace parax::testing {
namespace {

TEST(Add, SumsAndPassesGradientOn) {
  for (const Dims& dims : {Dims{1, 1, 1, 1}, Dims{3, 5, 7, 3}, Dims{2, 17}}) {
    LayerRun run(Add(), Request({dims, dims}));
    ASSERT_EQ(run.Forward(), Outcome::kOk);
    ASSERT_EQ(run.Backward(), Outcome::kOk);
    Values y = run.inputs[0];
    for (size_t i = 0; i < y.size(); ++i) y[i] += run.inputs[1][i];
    ExpectSameBits(run.output(), y, "output");
    ExpectSameBits(run.input_grad(0), run.output_grad, "gradient of input 0");
    ExpectSameBits(run.input_grad(1), run.output_grad, "gradient of input 1");
    EXPECT_TRUE(run.compiled().backward.empty());
  }
}

TEST(AddRelu, MatchesDefinitionOnOddShapes) {
  for (const Dims& dims : {Dims{1, 1, 1, 1}, Dims{3, 5, 7, 3}, Dims{2, 17}, Dims{1, 65, 9, 5}}) {
    for (const bool in_place : {false, true}) {
      for (const int threads : {1, 2}) {
        LayerRun run(Add(true), Request({dims, dims}, Mode::kTraining, false, threads), in_place);
        ASSERT_EQ(run.Forward(), Outcome::kOk);
        ASSERT_EQ(run.Backward(), Outcome::kOk);
        Values y = run.inputs[0], dx = run.output_grad;
        for (size_t i = 0; i < y.size(); ++i) {
          y[i] += run.inputs[1][i];
          if (y[i] <= 0) y[i] = dx[i] = 0;
        }
        ExpectSameBits(run.output(), y, "output");
        ExpectSameBits(run.input_grad(0), dx, "gradient of input 0");
        ExpectSameBits(run.input_grad(1), dx, "gradient of input 1");
      }
    }
  }
}

TEST(Add, Jacobian) {
  for (const bool relu : {false, true}) {
    LayerRun run(Add(relu), Request({{2, 3, 5, 7}, {2, 3, 5, 7}}));
    run.inputs[0] = SpreadValues(run.inputs[0].size(), 1, 0.1);
    run.inputs[1] = RandomValues(run.inputs[1].size(), 2, -0.03, 0.03);  // crosses no kink
    ExpectGradientsMatch(run);
  }
}

// When one input needs no gradient (a frozen branch), the other one's is written.
TEST(AddRelu, OneGradientOnly) {
  for (const int wanted : {0, 1}) {
    CompileRequest request = Request({{2, 40}, {2, 40}});
    request.need_input_grad = {wanted == 0, wanted == 1};
    LayerRun run(Add(true), request);
    ASSERT_EQ(run.Forward(), Outcome::kOk);
    ASSERT_EQ(run.Backward(), Outcome::kOk);
    Values dx = run.output_grad;
    for (size_t i = 0; i < dx.size(); ++i) {
      if (run.output()[i] <= 0) dx[i] = 0;
    }
    ExpectSameBits(run.input_grad(wanted), dx, "gradient");
  }
  CompileRequest frozen = Request({{2, 40}, {2, 40}});
  frozen.need_input_grad = {false, false};
  EXPECT_TRUE(Add(true)->Compile(frozen).backward.empty());
}

TEST(Add, WantsBothInputsInOneLayout) {
  CompileRequest request = Request({{2, 3, 4, 5}, {2, 3, 4, 5}});
  request.inputs[1] = Layout::Plain({2, 3, 4, 5});
  LayerRun run(Add(true), request);
  EXPECT_EQ(run.compiled().inputs[0], run.compiled().inputs[1]);
  EXPECT_EQ(run.compiled().inputs[0], request.inputs[0]);
}

TEST(Add, RefusesDifferentSizes) {
  EXPECT_THROW((void)Add()->OutputDims({{1, 2, 3, 4}, {1, 2, 3, 5}}), Error);
  EXPECT_THROW((void)Add()->OutputDims({{1, 2, 3, 4}}), Error);
}

TEST(Add, RefusesUnknownImplementation) {
  CompileRequest request = Request({{1, 8}, {1, 8}});
  request.implementations = {"parax:add"};
  EXPECT_NO_THROW((void)Add()->Compile(request));
  request.implementations = {"jit:avx2"};
  EXPECT_THROW((void)Add()->Compile(request), Error);
}

// 20 channels in blocks of 16: results as without blocks, and the padding stays zero.
TEST(AddRelu, KeepsPaddingZero) {
  const Dims dims = {2, 20, 3, 5};
  CompileRequest request = Request({dims, dims}, Mode::kTraining, /*blocked=*/true);
  for (Layout& layout : request.inputs)
    layout = LayoutOf({dims, dnnl::memory::data_type::f32, dnnl::memory::format_tag::nChw16c});
  LayerRun blocked(Add(true), request), plain(Add(true), Request({dims, dims}));
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
