#include "parax/data/pipeline.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <png.h>

#include <algorithm>
#include <set>
#include <thread>

#include "image_folder.h"
#include "parax/base/error.h"
#include "taken.h"

namespace parax {
namespace {

// An image whose every pixel is `value`, but for a ramp along the rows when `ramp`.
std::string Png(int value, bool ramp) {
  std::vector<unsigned char> pixels(12 * 12 * 3);
  for (size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<unsigned char>(value + (ramp ? static_cast<int>(i % 36) * 3 : 0));
  }
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = image.height = 12;
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&image, nullptr, &size, 0, pixels.data(), 0, nullptr);
  std::string file(size, '\0');
  png_image_write_to_memory(&image, file.data(), &size, 0, pixels.data(), 0, nullptr);
  file.resize(size);
  return file;
}

// Three classes; image i of the split has gray value i.
struct Images {
  explicit Images(int per_class, bool ramp = false) {
    for (int i = 0; i < 3 * per_class; ++i) {
      folder.Write(fmt::format("train/class{}/{:03}.png", i / per_class, i), Png(i, ramp));
    }
    Open();
  }
  void Open() { data = OpenDataset(folder.path(), {.val_split = 0.0, .keep_index = false}); }
  // Passes the look at indexing and fails when it is decoded.
  void Break(int64_t i) {
    const std::string path = data.train.Path(i).substr(folder.path().string().size() + 1);
    std::string file = Png(static_cast<int>(i), true);
    for (size_t k = file.size() / 2 - 8; k < file.size() / 2 + 8; ++k) file[k] = 'x';
    folder.Write(path, file);
  }

  TemporaryFolder folder;
  Dataset data;
};

PipelineOptions Plain(int64_t samples) {
  PipelineOptions options;
  options.plan = {.samples = samples, .batch = 8, .leaves = 2, .micro_batch = 3};
  options.seed = 5;
  options.transform.image_size = kSize;
  options.transform.eval_resize = 0;
  options.transform.normalization = ParseNormalization("none");
  return options;
}

PipelineOptions Augmented(int64_t samples) {
  PipelineOptions options = Plain(samples);
  options.transform.train = true;
  options.mix = {.mixup = 0.4, .cutmix = 1.0};
  options.classes = 3;
  return options;
}

// What each leaf gets over the whole run, leaves taking turns.
std::vector<std::vector<Taken>> TakeAll(InputSource& source, const PipelineOptions& options) {
  std::vector<std::vector<Taken>> all(static_cast<size_t>(options.plan.leaves));
  const int64_t per_epoch = options.plan.IterationsPerEpoch();
  for (int64_t it = options.first_iteration; it < options.epochs * per_epoch; ++it) {
    for (int leaf = 0; leaf < options.plan.leaves; ++leaf) {
      for (int m = 0; m < options.plan.MicroBatches(it % per_epoch, leaf); ++m) {
        all[static_cast<size_t>(leaf)].push_back(Take(source, leaf, it));
      }
    }
  }
  for (int leaf = 0; leaf < options.plan.leaves; ++leaf) {
    EXPECT_TRUE(Take(source, leaf).ids.empty()) << "nothing comes behind the end";
  }
  return all;
}

std::vector<std::vector<Taken>> RunAll(const Images& images, const PipelineOptions& options) {
  StopFlag stop;
  const auto source = MakeImagePipeline(images.data.train, options, stop);
  return TakeAll(*source, options);
}

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
  const auto whole = RunAll(images, options);
  for (int64_t first : {1, 3, 5, 8}) {
    options.first_iteration = first;
    const auto rest = RunAll(images, options);
    for (size_t leaf = 0; leaf < whole.size(); ++leaf) {
      std::vector<Taken> expected;
      std::copy_if(whole[leaf].begin(), whole[leaf].end(), std::back_inserter(expected),
                   [&](const Taken& taken) { return taken.iteration >= first; });
      EXPECT_EQ(rest[leaf], expected) << "from iteration " << first;
    }
  }
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

TEST(PipelineTest, ABrokenFileIsReplacedByTheNextOfItsClass) {
  Images images(10, true);
  PipelineOptions options = Augmented(30);
  options.mix = {};
  options.plan.micro_batch = 1;
  options.shuffle = false;
  images.Break(4);
  images.Break(19);  // the last of its class: the first one follows
  const auto find = [&](const std::vector<std::vector<Taken>>& all, int64_t sample) {
    return all[static_cast<size_t>(sample % 8 / 4)]
              [static_cast<size_t>(sample / 8 * 4 + sample % 4)];
  };
  for (int workers : {1, 4}) {
    options.workers = workers;
    options.plan.samples = 30;
    const auto all = RunAll(images, options);
    EXPECT_EQ(find(all, 3).ids[0], 3);
    EXPECT_EQ(find(all, 4).ids[0], 5);
    EXPECT_EQ(find(all, 4).content, find(all, 5).content);
    EXPECT_EQ(find(all, 19).ids[0], 10);
    EXPECT_EQ(find(all, 19).labels[0], 1);
    EXPECT_EQ(find(all, 19).content, find(all, 10).content);
  }
}

TEST(PipelineTest, PredictionMarksBrokenFiles) {
  Images images(10);
  PipelineOptions options = Plain(30);
  options.shuffle = false;
  options.mark_broken = true;
  options.plan.leaves = 1;
  for (int64_t i : {0, 1, 2, 3, 7}) images.Break(i);
  const auto all = RunAll(images, options);
  EXPECT_EQ(all[0][0].ids, (std::vector<int64_t>{-1, -2, -3}));
  EXPECT_EQ(all[0][1].ids, (std::vector<int64_t>{-4, 4, 5}));
  EXPECT_EQ(all[0][2].ids, (std::vector<int64_t>{6, -8}));
}

TEST(PipelineTest, TooManyBrokenFilesEndTheRun) {
  Images images(10);
  PipelineOptions options = Plain(30);
  options.workers = 2;
  for (int64_t i : {1, 5, 11, 21}) images.Break(i);
  StopFlag stop;
  const auto source = MakeImagePipeline(images.data.train, options, stop);
  MicroBatch batch;
  Outcome outcome = Outcome::kOk;
  int taken = 0;
  while ((outcome = source->Acquire(taken % 2, batch)) == Outcome::kOk && batch.count > 0) {
    source->Release(taken++ % 2);
  }
  EXPECT_EQ(outcome, Outcome::kStopped);
  EXPECT_EQ(stop.outcome(), Outcome::kInputFailed);
  EXPECT_NE(source->ErrorLine().find("4 of 30 images cannot be decoded"), std::string::npos)
      << source->ErrorLine();
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
