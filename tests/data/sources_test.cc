// The sources that need no files: random images, and tensors in memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "parax/base/error.h"
#include "parax/data/pipeline.h"
#include "taken.h"

namespace parax {
namespace {

TEST(SyntheticSourceTest, IsRandomAndEndless) {
  const BatchPlan plan{.samples = 10, .batch = 4, .leaves = 2, .micro_batch = 2};
  const auto source = MakeSyntheticSource(kSize, kSize, 3, 10, plan, 1);
  const auto same = MakeSyntheticSource(kSize, kSize, 3, 10, plan, 1);
  double sum = 0, squares = 0;
  for (int i = 0; i < 100; ++i) {
    MicroBatch a, b;
    ASSERT_EQ(source->Acquire(0, a), Outcome::kOk);
    ASSERT_EQ(same->Acquire(0, b), Outcome::kOk);
    ASSERT_EQ(a.count, i % 3 == 2 ? 1 : 2);  // epochs of 4, 4 and 2 samples
    EXPECT_EQ(Content(a, 0), Content(b, 0));
    EXPECT_GE(*std::min_element(a.labels, a.labels + a.count), 0);
    EXPECT_LT(*std::max_element(a.labels, a.labels + a.count), 10);
    if (i == 0) {
      for (int64_t k = 0; k < 2 * kPixels; ++k) {
        sum += a.images[k];
        squares += a.images[k] * a.images[k];
      }
      MicroBatch other;
      ASSERT_EQ(source->Acquire(1, other), Outcome::kOk);
      EXPECT_NE(Content(other, 0), Content(a, 0));
    }
    source->Release(0);
    same->Release(0);
  }
  EXPECT_NEAR(sum / (2 * kPixels), 0, 0.3);
  EXPECT_NEAR(squares / (2 * kPixels), 1, 0.2);
}

TEST(SyntheticSourceTest, ALeafWithoutAShareIsAtItsEndAtOnce) {
  const BatchPlan plan{.samples = 10, .batch = 1, .leaves = 2};
  const auto source = MakeSyntheticSource(kSize, kSize, 3, 10, plan, 1);
  EXPECT_TRUE(Take(*source, 1).ids.empty());
  EXPECT_FALSE(Take(*source, 0).ids.empty());
}

TEST(TensorSourceTest, GivesTheCallersMemoryOrAShuffledCopy) {
  std::vector<float> images(10 * kPixels);
  std::vector<int32_t> labels(10);
  for (size_t i = 0; i < images.size(); ++i) images[i] = static_cast<float>(i);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int32_t>(100 + i);
  TensorOptions options{.plan = {.samples = 10, .batch = 4, .leaves = 2, .micro_batch = 2}};
  const TensorData data{.images = images, .labels = labels, .image_floats = kPixels};
  auto source = MakeTensorSource(data, options);
  MicroBatch batch;
  ASSERT_EQ(source->Acquire(1, batch), Outcome::kOk);
  EXPECT_EQ(batch.images, images.data() + 2 * kPixels);
  EXPECT_EQ(batch.labels[1], 103);
  EXPECT_EQ(batch.sample_ids[1], 3);

  options.shuffle = true;
  options.epochs = 2;
  source = MakeTensorSource(data, options);
  std::multiset<int64_t> seen;
  for (int leaf = 0; leaf < 2; ++leaf) {
    for (;;) {
      ASSERT_EQ(source->Acquire(leaf, batch), Outcome::kOk);
      if (batch.count == 0) break;
      for (int64_t i = 0; i < batch.count; ++i) {
        const int64_t id = batch.sample_ids[i];
        seen.insert(id);
        EXPECT_EQ(batch.labels[i], 100 + id);
        EXPECT_EQ(batch.images[i * kPixels], static_cast<float>(id * kPixels));
      }
      source->Release(leaf);
    }
  }
  EXPECT_EQ(seen.size(), 20u);
  for (int64_t id = 0; id < 10; ++id) EXPECT_EQ(seen.count(id), 2u);
  EXPECT_THROW(MakeTensorSource({.images = images, .labels = labels, .image_floats = 5}, options),
               UsageError);
}

}  // namespace
}  // namespace parax
