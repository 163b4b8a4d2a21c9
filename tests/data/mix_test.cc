#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "parax/data/transform.h"

namespace parax {
namespace {

constexpr int64_t kN = 5, kSide = 16, kC = 3, kClasses = 4;
constexpr int64_t kSize = kSide * kSide * kC;

struct Batch {
  std::vector<float> images = std::vector<float>(kN * kSize);
  std::vector<int32_t> labels{0, 1, 2, 3, 1};
  std::vector<float> probabilities = std::vector<float>(kN * kClasses, -1.0f);

  // Every pixel tells its image: image i holds 10 * (i + 1).
  Batch() {
    for (int64_t i = 0; i < kN * kSize; ++i) images[i] = 10.0f * static_cast<float>(i / kSize + 1);
  }
  void Mix(const MixOptions& options, uint64_t iteration) {
    RandomStream random(5, RandomUse::kMix, iteration);
    MixBatch(options, random, images.data(), kN, kSide, kSide, kC, labels.data(), kClasses,
             probabilities.data());
  }
  float p(int64_t i, int64_t k) const { return probabilities[i * kClasses + k]; }
};

TEST(Mix, OffIsOneHotWithSmoothing) {
  Batch batch;
  batch.Mix({.smoothing = 0.1}, 0);
  for (int64_t i = 0; i < kN; ++i) {
    for (int64_t k = 0; k < kClasses; ++k) {
      EXPECT_NEAR(batch.p(i, k), k == batch.labels[i] ? 0.925 : 0.025, 1e-6);
    }
  }
  EXPECT_EQ(batch.images, Batch().images);
}

TEST(Mix, MixupBlendsPixelsAndLabelsAlike) {
  bool mixed = false;
  for (uint64_t iteration = 0; iteration < 20; ++iteration) {
    Batch batch;
    batch.Mix({.mixup = 0.8}, iteration);
    const float lambda = batch.p(0, 0);  // image 0 (label 0) with image 4 (label 1)
    EXPECT_NEAR(batch.p(0, 1), 1 - lambda, 1e-6);
    EXPECT_NEAR(batch.p(4, 1), lambda, 1e-6);
    EXPECT_NEAR(batch.p(2, 2), 1, 1e-6);  // the middle one is its own partner
    for (int64_t i = 0; i < kSize; ++i) {
      ASSERT_NEAR(batch.images[i], 10 * lambda + 50 * (1 - lambda), 1e-4);
      ASSERT_NEAR(batch.images[4 * kSize + i], 50 * lambda + 10 * (1 - lambda), 1e-4);
      ASSERT_NEAR(batch.images[2 * kSize + i], 30, 1e-4);
    }
    mixed |= lambda > 0.1 && lambda < 0.9;
  }
  EXPECT_TRUE(mixed);
}

TEST(Mix, CutmixSwapsABoxAndCountsItsArea) {
  bool mixed = false;
  for (uint64_t iteration = 0; iteration < 40; ++iteration) {
    Batch batch;
    batch.Mix({.cutmix = 1.0}, iteration);
    int64_t foreign = 0, left = kSide, right = -1, top = kSide, bottom = -1;
    for (int64_t i = 0; i < kSide * kSide; ++i) {
      const float value = batch.images[kC * i];
      ASSERT_TRUE(value == 10 || value == 50);
      ASSERT_EQ(batch.images[4 * kSize + kC * i], 60 - value);  // the partner got what we gave
      if (value == 10) continue;
      ++foreign;
      left = std::min(left, i % kSide);
      right = std::max(right, i % kSide);
      top = std::min(top, i / kSide);
      bottom = std::max(bottom, i / kSide);
    }
    if (foreign > 0) {
      EXPECT_EQ(foreign, (right - left + 1) * (bottom - top + 1));
    }
    EXPECT_NEAR(batch.p(0, 0), 1 - foreign / double(kSide * kSide), 1e-6);
    EXPECT_NEAR(batch.p(0, 1), foreign / double(kSide * kSide), 1e-6);
    mixed |= foreign > 30;
  }
  EXPECT_TRUE(mixed);
}

TEST(Mix, BothSwitchAndProbabilityHolds) {
  int cut = 0, blended = 0, untouched = 0;
  const int n = 400;
  for (uint64_t iteration = 0; iteration < n; ++iteration) {
    Batch batch;
    batch.Mix({.mixup = 1, .cutmix = 1, .switch_probability = 0.25, .probability = 0.5}, iteration);
    const std::vector<float> rows(batch.probabilities.begin(), batch.probabilities.end());
    EXPECT_NEAR(std::accumulate(rows.begin(), rows.end(), 0.0), kN, 1e-5);
    if (batch.images == Batch().images) {
      ++untouched;
    } else if (std::all_of(&batch.images[0], &batch.images[kSize],
                           [](float v) { return v == 10 || v == 50; })) {
      ++cut;
    } else {
      ++blended;
    }
  }
  EXPECT_NEAR(untouched, n / 2, 50);  // some boxes are empty
  EXPECT_NEAR(blended, n * 3 / 8, 50);
  EXPECT_NEAR(cut, n / 8, 35);
}

TEST(Mix, BetaHasItsMoments) {
  for (double alpha : {0.2, 1.0, 4.0}) {
    double sum = 0, squares = 0;
    const int n = 20000;
    RandomStream random(9, RandomUse::kTest);
    for (int i = 0; i < n; ++i) {
      const double x = DrawBeta(alpha, random);
      ASSERT_TRUE(x >= 0 && x <= 1);
      sum += x;
      squares += x * x;
    }
    const double mean = sum / n;
    EXPECT_NEAR(mean, 0.5, 0.012);
    EXPECT_NEAR(squares / n - mean * mean, 1 / (4 * (2 * alpha + 1)), 0.005);
  }
  RandomStream random(9, RandomUse::kTest);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(std::isfinite(DrawBeta(1e-4, random)));
}

}  // namespace
}  // namespace parax
