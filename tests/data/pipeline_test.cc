#include "parax/data/pipeline.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "parax/base/error.h"
#include "pipeline_harness.h"

namespace parax {
namespace {

TEST(PipelineTest, EvaluationIsOnePassInOrder) {
  const Images images(11);
  PipelineOptions options = Plain(33);
  options.shuffle = false;
  StopFlag stop;
  const auto source = MakeImagePipeline(images.data.train, options, stop);
  int64_t next = 0;
  for (int64_t it = 0; it < options.plan.IterationsPerEpoch(); ++it) {
    for (int leaf = 0; leaf < 2; ++leaf) {
      for (int micro = 0; micro < options.plan.MicroBatches(it, leaf); ++micro) {
        MicroBatch batch;
        ASSERT_EQ(source->Acquire(leaf, batch), Outcome::kOk);
        ASSERT_EQ(batch.count, options.plan.MicroBatch(it, leaf, micro).count);
        EXPECT_EQ(batch.probabilities, nullptr);
        for (int64_t i = 0; i < batch.count; ++i, ++next) {
          EXPECT_EQ(batch.sample_ids[i], next);
          EXPECT_EQ(batch.labels[i], next / 11);
          for (int64_t k = 0; k < kPixels; ++k) {
            ASSERT_NEAR(batch.images[i * kPixels + k], static_cast<float>(next) / 255, 1e-6);
          }
        }
        source->Release(leaf);
      }
    }
  }
  EXPECT_EQ(next, 33);
}

TEST(PipelineTest, EveryEpochTakesEverySampleOnceInAnotherOrder) {
  const Images images(7);
  PipelineOptions options = Plain(21);
  options.epochs = 3;
  std::vector<std::vector<int64_t>> orders(3);
  for (const auto& leaf : RunAll(images, options)) {
    for (const Taken& taken : leaf) {
      auto& order = orders[static_cast<size_t>(taken.iteration / 3)];
      order.insert(order.end(), taken.ids.begin(), taken.ids.end());
    }
  }
  for (const auto& order : orders) {
    EXPECT_EQ(order.size(), 21u);
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 21u);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
}

TEST(PipelineTest, WorkersPrefetchAndKeptFilesDoNotChangeAnything) {
  const Images images(15, true);
  PipelineOptions options = Augmented(45);
  options.plan.leaves = 3;
  options.plan.batch = 14;
  options.epochs = 3;
  const auto expected = RunAll(images, options);
  for (int workers : {2, 4}) {
    options.workers = workers;
    options.prefetch = workers == 2 ? 1 : 5;
    options.keep_encoded_bytes = workers == 2 ? 0 : 1 << 20;
    EXPECT_EQ(RunAll(images, options), expected) << workers << " workers";
  }
  options.seed = 6;
  EXPECT_NE(RunAll(images, options), expected);
}

TEST(PipelineTest, ResumesWhereItStopped) {
  const Images images(7, true);
  PipelineOptions options = Augmented(21);
  options.epochs = 3;
  options.workers = 2;
  ExpectResumable(images, options, {1, 3, 5, 8});
}

// Case I: a last batch of one sample, three leaves.
TEST(PipelineTest, OneSampleForThreeLeaves) {
  const Images images(3);
  PipelineOptions options = Plain(9);
  options.plan.leaves = 3;
  options.epochs = 2;
  const auto all = RunAll(images, options);
  ASSERT_EQ(all[0].size(), 4u);
  EXPECT_EQ(all[0][1].ids.size(), 1u);
  ASSERT_EQ(all[1].size(), 2u);
  ASSERT_EQ(all[2].size(), 2u);
  EXPECT_EQ(all[1][1].ids.size(), 3u);  // of the second epoch's first batch
  EXPECT_EQ(all[2][1].ids.size(), 2u);
}

TEST(PipelineTest, ALeafFarAheadDoesNotWaitForTheOthers) {
  const Images images(12);
  PipelineOptions options = Plain(36);
  options.prefetch = 1;
  StopFlag stop;
  const auto source = MakeImagePipeline(images.data.train, options, stop);
  size_t first = 0;
  for (Taken taken = Take(*source, 1); !taken.ids.empty(); taken = Take(*source, 1)) {
    first += taken.ids.size();
  }
  EXPECT_EQ(first, 18u);
  std::set<int64_t> ids;
  for (Taken taken = Take(*source, 0); !taken.ids.empty(); taken = Take(*source, 0)) {
    ids.insert(taken.ids.begin(), taken.ids.end());
  }
  EXPECT_EQ(ids.size(), 18u);
}

TEST(PipelineTest, AMicroBatchStaysAsItIsUntilReleased) {
  const Images images(12, true);
  PipelineOptions options = Augmented(36);
  options.epochs = 20;
  options.workers = 2;
  StopFlag stop;
  const auto source = MakeImagePipeline(images.data.train, options, stop);
  MicroBatch held;
  ASSERT_EQ(source->Acquire(0, held), Outcome::kOk);
  const uint64_t before = Content(held, 3);
  for (int i = 0; i < 50; ++i) ASSERT_FALSE(Take(*source, 1).ids.empty());
  EXPECT_EQ(Content(held, 3), before);
}

TEST(PipelineTest, KeptFilesAreReadOnce) {
  const Images images(4);
  PipelineOptions options = Plain(12);
  options.plan.leaves = 1;
  options.epochs = 2;
  options.prefetch = 1;
  options.keep_encoded_bytes = 1 << 20;
  StopFlag stop;
  const auto source = MakeImagePipeline(images.data.train, options, stop);
  const int per_epoch = options.plan.MicroBatches(0, 0) + options.plan.MicroBatches(1, 0);
  for (int i = 0; i < per_epoch; ++i) Take(*source, 0);
  std::filesystem::remove_all(images.folder / "train");
  for (int i = 0; i < per_epoch; ++i) EXPECT_FALSE(Take(*source, 0).ids.empty());
  EXPECT_FALSE(stop.stopped()) << source->ErrorLine();
}

TEST(PipelineTest, StopEndsWaitingLeaves) {
  const Images images(20);
  PipelineOptions options = Plain(60);
  options.epochs = 1'000'000;
  options.workers = 2;
  StopFlag stop;
  const auto source = MakeImagePipeline(images.data.train, options, stop);
  std::atomic<int> taken{0};
  std::vector<Outcome> ends(2);
  std::vector<std::thread> leaves;
  for (int leaf = 0; leaf < 2; ++leaf) {
    leaves.emplace_back([&, leaf] {
      MicroBatch batch;
      Outcome& outcome = ends[static_cast<size_t>(leaf)];
      while ((outcome = source->Acquire(leaf, batch)) == Outcome::kOk) {
        source->Release(leaf);
        if (++taken == 100) stop.Request();
      }
    });
  }
  for (std::thread& leaf : leaves) leaf.join();
  EXPECT_EQ(ends, (std::vector<Outcome>{Outcome::kStopped, Outcome::kStopped}));
  EXPECT_EQ(source->ErrorLine(), "");
}

TEST(PipelineTest, RefusesOptionsThatCannotBe) {
  const Images images(2);
  StopFlag stop;
  const auto make = [&](auto change) {
    PipelineOptions options = Plain(6);
    change(options);
    return MakeImagePipeline(images.data.train, options, stop);
  };
  EXPECT_THROW(make([](auto& o) { o.plan.drop_last = true; }), UsageError);
  EXPECT_THROW(make([](auto& o) { o.plan.samples = 7; }), UsageError);
  EXPECT_THROW(make([](auto& o) { o.workers = 0; }), UsageError);
  EXPECT_THROW(make([](auto& o) { o.prefetch = 0; }), UsageError);
  EXPECT_THROW(make([](auto& o) { o.mix.mixup = 1; }), UsageError);
}

}  // namespace
}  // namespace parax
