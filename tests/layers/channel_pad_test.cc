#include <gtest/gtest.h>

#include "parax/base/error.h"
#include "tests/layers/harness.h"

namespace parax::testing {
namespace {

struct Shape {
  Dims in;
  int64_t channels, before, stride;
};

const Shape kShapes[] = {{{2, 16, 8, 8}, 32, 8, 2}, {{3, 5, 7, 9}, 8, 1, 2},
                         {{1, 1, 1, 1}, 4, 3, 3},   {{2, 3, 5, 6}, 7, 4, 1},
                         {{2, 3, 10, 7}, 3, 0, 3},  {{1, 20, 4, 5}, 36, 0, 2}};

// y[n, before + c, h, w] = x[n, c, h * stride, w * stride], zero elsewhere.
TEST(ChannelPad, MatchesDefinition) {
  for (const Shape& s : kShapes) {
    for (const int threads : {1, 2}) {
      LayerRun run(ChannelPad(s.channels, s.before, s.stride),
                   Request({s.in}, Mode::kTraining, false, threads));
      ASSERT_EQ(run.Forward(), Outcome::kOk);
      ASSERT_EQ(run.Backward(), Outcome::kOk);
      const Dims out = run.layer().OutputDims({s.in});
      EXPECT_EQ(out[2], (s.in[2] + s.stride - 1) / s.stride);
      Values y(static_cast<size_t>(Product(out)), 0.0f), dx(run.inputs[0].size(), 0.0f);
      for (int64_t n = 0; n < out[0]; ++n) {
        for (int64_t c = 0; c < s.in[1]; ++c) {
          for (int64_t h = 0; h < out[2]; ++h) {
            for (int64_t w = 0; w < out[3]; ++w) {
              const auto from = static_cast<size_t>(
                  ((n * s.in[1] + c) * s.in[2] + h * s.stride) * s.in[3] + w * s.stride);
              const auto to =
                  static_cast<size_t>(((n * out[1] + c + s.before) * out[2] + h) * out[3] + w);
              y[to] = run.inputs[0][from];
              dx[from] = run.output_grad[to];
            }
          }
        }
      }
      ExpectSameBits(run.output(), y, "output");
      ExpectSameBits(run.input_grad(0), dx, "input gradient");
    }
  }
}

TEST(ChannelPad, Jacobian) {
  for (const Shape& s : kShapes) {
    LayerRun run(ChannelPad(s.channels, s.before, s.stride), Request({s.in}));
    ExpectGradientsMatch(run);
  }
}

TEST(ChannelPad, WantsChannelsLast) {
  CompileRequest request = Request({{2, 16, 4, 4}}, Mode::kTraining, /*blocked=*/true);
  request.inputs[0] = Layout::Plain({2, 16, 4, 4});
  const CompiledLayer compiled = ChannelPad(32, 8, 2)->Compile(request);
  EXPECT_EQ(compiled.inputs[0], Layout::ChannelsLast({2, 16, 4, 4}));
  EXPECT_EQ(compiled.output, Layout::ChannelsLast({2, 32, 2, 2}));
}

TEST(ChannelPad, RefusesWhatDoesNotFit) {
  EXPECT_THROW((void)ChannelPad(16, 8, 2)->OutputDims({{1, 16, 8, 8}}), Error);
  EXPECT_THROW((void)ChannelPad(16, 0, 2)->OutputDims({{1, 16}}), Error);
  EXPECT_THROW((void)ChannelPad(16, 0, 0), Error);
}

}  // namespace
}  // namespace parax::testing
