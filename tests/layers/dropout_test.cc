#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "parax/base/error.h"
#include "parax/base/philox.h"
#include "tests/layers/harness.h"

namespace parax::testing {
namespace {

Values Ones(size_t count) { return Values(count, 1.0f); }

// The mask of a layer over `dims`, canonical order, for given samples.
Values Mask(double p, const Dims& dims, std::vector<int64_t> samples, uint32_t layer = 3,
            uint64_t iteration = 9, uint64_t seed = 11) {
  LayerRun run(Dropout(p, layer), Request({dims}));
  run.inputs[0] = Ones(run.inputs[0].size());
  run.sample_ids = std::move(samples);
  run.context.iteration = iteration;
  run.context.seed = seed;
  EXPECT_EQ(run.Forward(), Outcome::kOk);
  return run.output();
}

TEST(Dropout, DropsTheRightShareAndScales) {
  for (const double p : {0.1, 0.5, 0.9}) {
    const size_t n = 4 * 50000;
    const Values mask = Mask(p, {4, 50000}, {0, 1, 2, 3});
    const auto dropped = static_cast<double>(std::count(mask.begin(), mask.end(), 0.0f));
    EXPECT_NEAR(dropped / n, p, 5 * std::sqrt(p * (1 - p) / n));
    const auto kept = static_cast<float>(1 / (1 - p));
    EXPECT_TRUE(
        std::all_of(mask.begin(), mask.end(), [&](float v) { return v == 0 || v == kept; }));
  }
}

// Neighbours, images, iterations, layers and seeds do not share random numbers.
TEST(Dropout, MasksAreIndependent) {
  const Dims dims = {1, 40000};
  const Values mask = Mask(0.5, dims, {0});
  const auto agreement = [&](const Values& other, size_t shift) {
    size_t equal = 0;
    for (size_t i = shift; i < mask.size(); ++i) equal += mask[i] == other[i - shift] ? 1 : 0;
    return static_cast<double>(equal) / static_cast<double>(mask.size() - shift);
  };
  for (const size_t shift : {1, 2, 3, 4, 16, 48, 64})
    EXPECT_NEAR(agreement(mask, shift), 0.5, 0.015);
  EXPECT_NEAR(agreement(Mask(0.5, dims, {1}), 0), 0.5, 0.015);
  EXPECT_NEAR(agreement(Mask(0.5, dims, {int64_t{1} << 32}), 0), 0.5, 0.015);
  EXPECT_NEAR(agreement(Mask(0.5, dims, {0}, 4), 0), 0.5, 0.015);
  EXPECT_NEAR(agreement(Mask(0.5, dims, {0}, 3, 10), 0), 0.5, 0.015);
  EXPECT_NEAR(agreement(Mask(0.5, dims, {0}, 3, 9, 12), 0), 0.5, 0.015);
  ExpectSameBits(Mask(0.5, dims, {0}), mask, "mask made again");
}

// Element e of group g: word e / 16 of block 16 g + e % 16 of Philox4x32.
TEST(Dropout, FollowsPhilox) {
  const size_t per_image = 200;
  const Values mask = Mask(0.25, {2, per_image}, {5, 7}, 3, 9, 11);
  for (size_t image = 0; image < 2; ++image) {
    const auto folded = Philox4x32({9, 0, static_cast<uint32_t>(RandomUse::kDropout), 3}, {11, 0});
    for (size_t i = 0; i < per_image; ++i) {
      const auto block = static_cast<uint32_t>(i / 64 * 16 + i % 16);
      const auto words =
          Philox4x32({block, image == 0 ? 5u : 7u, 0, folded[2]}, {folded[0], folded[1]});
      EXPECT_EQ(mask[image * per_image + i] != 0, words[i % 64 / 16] >= 0x40000000u) << i;
    }
  }
}

TEST(Dropout, DoesNotDependOnTheSplitIntoMicroBatches) {
  const Dims one = {1, 5, 7, 3};
  const std::vector<int64_t> samples = {42, 7, 1000000007};
  const Values together = Mask(0.3, {3, 5, 7, 3}, samples);
  Values apart;
  for (const int64_t sample : samples) {
    const Values mask = Mask(0.3, one, {sample});
    apart.insert(apart.end(), mask.begin(), mask.end());
  }
  ExpectSameBits(together, apart, "mask");
}

TEST(Dropout, DoesNotDependOnThreadsOrLayoutOrPlace) {
  const Dims dims = {3, 50, 7, 9};
  CompileRequest plain = Request({dims});
  plain.inputs[0] = Layout::Plain(dims);
  LayerRun first(Dropout(0.4, 1), Request({dims}));
  LayerRun two_threads(Dropout(0.4, 1), Request({dims}, Mode::kTraining, false, 2));
  LayerRun other_layout(Dropout(0.4, 1), plain);
  LayerRun in_place(Dropout(0.4, 1), Request({dims}), /*in_place=*/true);
  for (LayerRun* run : {&first, &two_threads, &other_layout, &in_place}) {
    ASSERT_EQ(run->Forward(), Outcome::kOk);
    ASSERT_EQ(run->Backward(), Outcome::kOk);
    ExpectSameBits(run->output(), first.output(), "output");
    ExpectSameBits(run->input_grad(0), first.input_grad(0), "input gradient");
  }
}

TEST(Dropout, Jacobian) {
  LayerRun run(Dropout(0.5, 2), Request({{2, 3, 5, 7}}));
  ExpectGradientsMatch(run);
}

TEST(Dropout, IsAViewWhenItDropsNothing) {
  LayerRun evaluation(Dropout(0.5, 2), Request({{2, 3, 5, 7}}, Mode::kEvaluation));
  LayerRun zero(Dropout(0, 2), Request({{2, 3, 5, 7}}));
  for (LayerRun* run : {&evaluation, &zero}) {
    EXPECT_TRUE(run->compiled().output_is_input);
    ASSERT_EQ(run->Forward(), Outcome::kOk);
    ExpectSameBits(run->output(), run->inputs[0], "output");
  }
}

TEST(Dropout, RefusesImpossibleProbabilities) {
  EXPECT_THROW((void)Dropout(1.0, 0), Error);
  EXPECT_THROW((void)Dropout(-0.1, 0), Error);
  EXPECT_THROW((void)Dropout(std::nan(""), 0), Error);
}

}  // namespace
}  // namespace parax::testing
