#include <gtest/gtest.h>
#include <sys/resource.h>

#include "image_writer.h"
#include "parax/base/error.h"
#include "parax/data/encoded_files.h"
#include "pipeline_harness.h"

// Files that pass the look at indexing and fail when they are decoded.
namespace parax {
namespace {

TEST(BrokenFilesTest, ABrokenFileIsReplacedByTheNextOfItsClass) {
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

TEST(BrokenFilesTest, EvaluationMarksBrokenFilesAndTakesTheirLabels) {
  Images images(10);
  PipelineOptions options = Plain(30);
  options.shuffle = false;
  options.mark_broken = true;
  options.plan.leaves = 1;
  for (int64_t i : {0, 1, 7}) images.Break(i);
  const auto all = RunAll(images, options);
  EXPECT_EQ(all[0][0].ids, (std::vector<int64_t>{-1, -2, 2}));
  EXPECT_EQ(all[0][0].labels, (std::vector<int32_t>{-1, -1, 0}));
  EXPECT_EQ(all[0][2].ids, (std::vector<int64_t>{6, -8}));
  EXPECT_EQ(all[0][2].labels, (std::vector<int32_t>{0, -1}));
}

TEST(BrokenFilesTest, PredictionGoesOnHoweverManyAreBroken) {
  Images images(10);
  PipelineOptions options = Plain(30);
  options.shuffle = false;
  options.mark_broken = true;
  options.plan.leaves = 1;
  std::vector<std::string> paths;
  for (int64_t i = 0; i < 30; ++i) paths.push_back(images.data.train.Path(i));
  for (int64_t i : {0, 1, 2, 3, 7}) images.Break(i);
  images.data.train = SplitFromFiles(paths);
  const auto all = RunAll(images, options);
  EXPECT_EQ(all[0][0].ids, (std::vector<int64_t>{-1, -2, -3}));
  EXPECT_EQ(all[0][1].ids, (std::vector<int64_t>{-4, 4, 5}));
}

TEST(BrokenFilesTest, OneIsTooManyWhenStrict) {
  for (const bool evaluation : {false, true}) {
    Images images(10);
    PipelineOptions options = Plain(30);
    options.strict = true;
    options.mark_broken = evaluation;
    images.Break(7);
    StopFlag stop;
    const auto source = MakeImagePipeline(images.data.train, options, stop);
    MicroBatch batch;
    int taken = 0;
    while (source->Acquire(taken % 2, batch) == Outcome::kOk && batch.count > 0) {
      source->Release(taken++ % 2);
    }
    EXPECT_EQ(stop.outcome(), Outcome::kInputFailed);
    EXPECT_NE(source->ErrorLine().find(images.data.train.Path(7)), std::string::npos)
        << source->ErrorLine();
  }
}

TEST(BrokenFilesTest, TooManyBrokenFilesEndTheRun) {
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

TEST(BrokenFilesTest, AShortageOfDescriptorsIsNoFaultOfTheFile) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan opens a pipe to look at objects, and takes them for bad without one";
#endif
  Images images(3);
  EncodedFiles files(images.data.train, 0);
  EncodedFiles::Buffer buffer;
  std::string why;
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{3, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_THROW((void)files.Read(0, buffer, why), Error);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_FALSE(files.Read(0, buffer, why).empty());
}

// A crop above the damage is decoded, another is not: no epoch may hang on what others met.
TEST(BrokenFilesTest, AFileDamagedInItsMiddleIsTriedAnewInEveryEpoch) {
  Images images(5);
  const std::string jpeg = WriteJpeg(MakePicture(192, 192));
  images.folder.Write("train/class0/000.jpg", jpeg.substr(0, jpeg.size() * 3 / 4) + "\xff\xd9");
  images.Open();
  PipelineOptions options = Augmented(16);
  options.mix = {};
  options.epochs = 12;
  options.transform.scaled_decoding = false;  // else so small a picture is decoded whole
  const auto whole = ExpectResumable(images, options, {2, 7, 12, 20});
  options.workers = 4;
  EXPECT_EQ(RunAll(images, options), whole);
  int64_t decoded = 0;
  for (const auto& leaf : whole) {
    for (const Taken& taken : leaf) decoded += std::count(taken.ids.begin(), taken.ids.end(), 0);
  }
  EXPECT_GT(decoded, 0);
  EXPECT_LT(decoded, options.epochs);
}

}  // namespace
}  // namespace parax
