#include "parax/engine/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include "parax/base/file.h"
#include "tests/engine/test_files.h"

namespace parax {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TemporaryFolder;

CheckpointContent Content(float value, bool ema = true) {
  CheckpointContent content;
  content.model["w"] = {{2}, {value, 1}};
  if (ema) content.ema["w"] = {{2}, {value / 2, 1}};
  content.optimizer["w.momentum_buffer"] = {{2}, {value * 3, 0}};
  content.config_json = R"({"model":"resnet18"})";
  content.state_json = R"({"step":)" + std::to_string(value) + "}";
  content.plan_json = "{}";
  return content;
}

float ModelValue(const fs::path& checkpoint) {
  return LoadCheckpoint(checkpoint, CheckpointUse::kResume).model.at("w").values[0];
}

std::vector<int64_t> Steps(const fs::path& folder) {
  std::vector<int64_t> steps;
  for (const CheckpointEntry& entry : ListCheckpoints(folder)) steps.push_back(entry.step);
  return steps;
}

std::vector<std::string> Names(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

// A folder with whole checkpoints of the given steps; each model's value is its step.
class Checkpoint : public ::testing::Test {
 protected:
  void Save(std::initializer_list<int> steps) {
    for (const int step : steps) {
      SaveCheckpoint(checkpoints(), step, Content(static_cast<float>(step)));
    }
  }
  // As after a crash: cut to nothing.
  void Damage(int step) { fs::resize_file(Step(step) / "state.json", 0); }
  fs::path checkpoints() const { return folder_.path() / "checkpoints"; }
  fs::path Step(int step) const { return checkpoints() / ("step-" + std::to_string(step)); }
  const TemporaryFolder folder_;
};

TEST_F(Checkpoint, RoundTrip) {
  Save({7});
  EXPECT_THAT(Names(Step(7)),
              ElementsAre("config.json", "ema.safetensors", "manifest.json", "model.safetensors",
                          "optimizer.safetensors", "plan.json", "state.json"));
  const CheckpointContent read = LoadCheckpoint(Step(7), CheckpointUse::kResume);
  const CheckpointContent wrote = Content(7);
  EXPECT_EQ(read.model.at("w").values, wrote.model.at("w").values);
  EXPECT_EQ(read.ema.at("w").values, wrote.ema.at("w").values);
  EXPECT_EQ(read.optimizer.at("w.momentum_buffer").values, (std::vector<float>{21, 0}));
  EXPECT_EQ(read.config_json, wrote.config_json);
  EXPECT_EQ(read.state_json, wrote.state_json);
  EXPECT_EQ(read.plan_json, wrote.plan_json);
  EXPECT_THAT(Names(checkpoints()), ElementsAre("step-7")) << "nothing temporary stays";
}

TEST_F(Checkpoint, SavingTheSameStepReplacesIt) {
  Save({7});
  SaveCheckpoint(checkpoints(), 7, Content(8, /*ema=*/false));
  EXPECT_EQ(ModelValue(Step(7)), 8);
  EXPECT_FALSE(fs::exists(Step(7) / "ema.safetensors"));
  EXPECT_THAT(Names(checkpoints()), ElementsAre("step-7"));
}

// Case M: every file of the newest checkpoint cut at every byte, or missing.
TEST_F(Checkpoint, AnyTruncationFallsBackToTheLastWhole) {
  Save({10, 20});
  for (const std::string& name : Names(Step(20))) {
    const fs::path file = Step(20) / name;
    const std::string whole = ReadFile(file);
    for (size_t size = whole.size(); size-- > 0;) {
      fs::resize_file(file, size);
      ASSERT_NE(CheckpointDamage(Step(20)), "") << name << " cut to " << size;
    }
    ::testing::internal::CaptureStderr();
    const auto found = FindNewestWhole(checkpoints());
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("step-20 is damaged"));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->step, 10);
    EXPECT_THAT(ErrorOf([&] { LoadCheckpoint(Step(20), CheckpointUse::kResume); }),
                HasSubstr("step-20 is damaged"));
    fs::remove(file);
    EXPECT_NE(CheckpointDamage(Step(20)), "") << name << " missing";
    WriteFileAtomically(file, whole);
  }
  EXPECT_EQ(CheckpointDamage(Step(20)), "");
  EXPECT_EQ(FindNewestWhole(checkpoints())->step, 20);
}

TEST_F(Checkpoint, ChangedBytesAreFound) {
  Save({1});
  std::string bytes = ReadFile(Step(1) / "optimizer.safetensors");
  bytes.back() ^= 1;
  WriteFileAtomically(Step(1) / "optimizer.safetensors", bytes);
  EXPECT_THAT(CheckpointDamage(Step(1)), HasSubstr("optimizer.safetensors"));
  EXPECT_EQ(CheckpointDamage(Step(1), CheckpointUse::kPredict), "") << "prediction needs it not";
  EXPECT_EQ(LoadCheckpoint(Step(1), CheckpointUse::kPredict).model.at("w").values[0], 1);
}

TEST_F(Checkpoint, NoneWhole) {
  EXPECT_FALSE(FindNewestWhole(checkpoints()));
  Save({1});
  Damage(1);
  EXPECT_FALSE(FindNewestWhole(checkpoints()));
}

// Case M: no room. A file size limit stands for a full disk: both end in a failing write.
TEST_F(Checkpoint, FullDiskLosesNothing) {
  Save({10});
  CheckpointContent big = Content(10);
  big.optimizer["big"] = {{100'000}, std::vector<float>(100'000)};
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{100'000, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string next = ErrorOf([&] { SaveCheckpoint(checkpoints(), 20, big); });
  const std::string same = ErrorOf([&] { SaveCheckpoint(checkpoints(), 10, big); });
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, old_handler);
  EXPECT_THAT(next, HasSubstr("step-20 was not saved"));
  EXPECT_THAT(same, HasSubstr("step-10 was not saved"));
  EXPECT_THAT(Names(checkpoints()), ElementsAre("step-10"));
  EXPECT_EQ(ModelValue(Step(10)), 10);
}

TEST_F(Checkpoint, UnwritableFolderIsOneLine) {
  WriteFileAtomically(folder_.path() / "file", "x");
  EXPECT_THAT(ErrorOf([&] { SaveCheckpoint(folder_.path() / "file", 1, Content(1)); }),
              HasSubstr("was not saved"));
}

TEST_F(Checkpoint, WhatAKillLeftIsNoCheckpointAndGoesAway) {
  Save({10});
  fs::copy(Step(10), checkpoints() / ".step-20.tmp");
  EXPECT_THAT(Steps(checkpoints()), ElementsAre(10));
  EXPECT_EQ(FindNewestWhole(checkpoints())->step, 10);
  Save({30});
  EXPECT_THAT(Names(checkpoints()), ElementsAre("step-10", "step-30"));
}

TEST_F(Checkpoint, ListsByStepAndIgnoresOtherNames) {
  EXPECT_THAT(ListCheckpoints(checkpoints()), IsEmpty());
  Save({100, 9, 20});
  for (const char* name : {"step-", "step-x", "step-5x", "step--1", "other"}) {
    fs::create_directory(checkpoints() / name);
  }
  EXPECT_THAT(Steps(checkpoints()), ElementsAre(9, 20, 100));
}

TEST_F(Checkpoint, PruneKeepsNewestAndBest) {
  Save({1, 2, 3, 4, 5});
  WriteBest(checkpoints(), {2, "top1", 0.75});
  PruneCheckpoints(checkpoints(), 2, 5);
  EXPECT_THAT(Steps(checkpoints()), ElementsAre(2, 4, 5));
  PruneCheckpoints(checkpoints(), 0, 5);
  EXPECT_THAT(Steps(checkpoints()), ElementsAre(2, 5)) << "the newest always stays";
}

TEST_F(Checkpoint, PruneAfterResumeKeepsLaterWholeOnes) {
  Save({1, 2, 7, 8});
  Damage(8);
  PruneCheckpoints(checkpoints(), 1, 2);
  EXPECT_THAT(Steps(checkpoints()), ElementsAre(2, 7));
}

TEST_F(Checkpoint, BestRecordRoundTrips) {
  EXPECT_FALSE(ReadBest(checkpoints()));
  Save({3});
  WriteBest(checkpoints(), {3, "top1", 0.1});
  const auto best = ReadBest(checkpoints());
  ASSERT_TRUE(best);
  EXPECT_EQ(best->step, 3);
  EXPECT_EQ(best->metric, "top1");
  EXPECT_EQ(best->value, 0.1);
  WriteFileAtomically(checkpoints() / "best.json", "{\"step\":3");
  EXPECT_FALSE(ReadBest(checkpoints()));
}

TEST_F(Checkpoint, ModelArgument) {
  EXPECT_THROW(ResolveModelArgument(folder_.path() / "nothing"), UsageError);
  EXPECT_THROW(ResolveModelArgument(folder_.path()), UsageError);
  Save({1, 2, 3});
  EXPECT_EQ(ResolveModelArgument(Step(1)).checkpoint, Step(1));
  const ResolvedModel last = ResolveModelArgument(folder_.path());
  EXPECT_EQ(last.checkpoint, Step(3));
  EXPECT_THAT(last.line, HasSubstr("the last checkpoint"));
  WriteBest(checkpoints(), {2, "top1", 0.75});
  const ResolvedModel best = ResolveModelArgument(folder_.path());
  EXPECT_EQ(best.checkpoint, Step(2));
  EXPECT_THAT(best.line, HasSubstr("the best checkpoint"));
  EXPECT_THAT(best.line, HasSubstr("top1 0.75"));
  EXPECT_EQ(ResolveModelArgument(checkpoints()).checkpoint, Step(2));
  fs::resize_file(Step(2) / "model.safetensors", 3);
  EXPECT_EQ(ResolveModelArgument(folder_.path()).checkpoint, Step(3));
  Damage(3);
  EXPECT_EQ(ResolveModelArgument(folder_.path()).checkpoint, Step(1));
}

TEST_F(Checkpoint, MovesWithTheRunFolder) {
  Save({1, 2});
  WriteBest(checkpoints(), {1, "top1", 0.5});
  const TemporaryFolder other;
  fs::rename(checkpoints(), other.path() / "checkpoints");
  EXPECT_EQ(ModelValue(ResolveModelArgument(other.path()).checkpoint), 1);
}

}  // namespace
}  // namespace parax
