#include <gtest/gtest.h>

#include "parax/base/error.h"
#include "parax/layers/onednn_internal.h"
#include "tests/layers/harness.h"

namespace parax::testing {
namespace {

// Whatever layout the tensor comes in: (C, H, W) order comes out, and gradients go back.
TEST(Flatten, GivesRowMajorOrder) {
  for (const Dims& dims : {Dims{2, 3, 4, 5}, Dims{3, 20, 1, 1}, Dims{1, 1, 3, 1}, Dims{2, 7}}) {
    for (const bool plain : {false, true}) {
      CompileRequest request = Request({dims});
      if (plain) request.inputs[0] = Layout::Plain(dims);
      LayerRun run(Flatten(), request);
      ASSERT_EQ(run.Forward(), Outcome::kOk);
      ASSERT_EQ(run.Backward(), Outcome::kOk);
      EXPECT_EQ(run.compiled().output, Layout::Plain({dims[0], Product(dims) / dims[0]}));
      ExpectSameBits(run.output(), run.inputs[0], "output");
      ExpectSameBits(run.input_grad(0), run.output_grad, "input gradient");
    }
  }
}

TEST(Flatten, AsksForNoReorderThatChangesNothing) {
  const Layout pixel = Layout::ChannelsLast({3, 20, 1, 1});
  EXPECT_EQ(Flatten()->Compile(Request({{3, 20, 1, 1}})).inputs[0], pixel);
  const Layout plain = Layout::Plain({3, 4, 5, 6});
  EXPECT_EQ(Flatten()->Compile(Request({{3, 4, 5, 6}})).inputs[0], plain);
}

TEST(Flatten, SeesThroughBlockedLayouts) {
  const auto blocked = [](const Dims& dims) {
    return LayoutOf({dims, dnnl::memory::data_type::f32, dnnl::memory::format_tag::nChw16c});
  };
  for (const Dims& dims : {Dims{3, 32, 1, 1}, Dims{3, 20, 1, 1}, Dims{3, 32, 2, 1}}) {
    CompileRequest request = Request({dims}, Mode::kTraining, /*blocked=*/true);
    request.inputs[0] = blocked(dims);
    LayerRun run(Flatten(), request);
    EXPECT_EQ(run.compiled().inputs[0] == request.inputs[0], (dims == Dims{3, 32, 1, 1}));
    ASSERT_EQ(run.Forward(), Outcome::kOk);
    ExpectSameBits(run.output(), run.inputs[0], "output");
  }
}

TEST(Flatten, RefusesThreeDimensions) {
  EXPECT_THROW((void)Flatten()->OutputDims({{1, 2, 3}}), Error);
}

}  // namespace
}  // namespace parax::testing
