#include "parax/cli/resume.h"

#include <gtest/gtest.h>

#include <fstream>

#include "parax/base/error.h"
#include "parax/base/file.h"
#include "parax/engine/checkpoint.h"
#include "tests/cli/program.h"

namespace parax {
namespace {

namespace fs = std::filesystem;
using testing::Holds;
using testing::MakeData;
using testing::ProgramResult;
using testing::RunProgram;
using testing::TemporaryFolder;
using testing::TrainCommand;

// Everything that is the same each time: steps and losses, not times.
std::string StepsAndLosses(const fs::path& run) {
  std::ifstream in(run / "metrics.jsonl");
  std::string result;
  for (std::string line; std::getline(in, line);) {
    result += line.substr(0, line.find("\"images_per_s\"")) + "\n";
  }
  return result;
}

// With averaging, momentum, mixing and dropout, so that everything a step depends on counts.
ProgramResult TrainToTheEnd(const TemporaryFolder& folder) {
  MakeData(folder.path() / "data");
  return RunProgram(folder.path(), TrainCommand({"--max-steps", "8", "--save-every", "2", "--keep",
                                                 "9", "--ema", "0.9", "--mixup", "0.2", "--dropout",
                                                 "0.1", "--lr", "0.05", "--out", "run"}));
}

TEST(Resume, EndsInTheSameBits) {
  const TemporaryFolder folder;
  const ProgramResult first = TrainToTheEnd(folder);
  ASSERT_EQ(first.status, 0) << first.err;
  const fs::path run = folder.path() / "run", saved = run / "checkpoints";
  const auto content = [&] {
    std::string all;
    for (const char* name :
         {"model.safetensors", "ema.safetensors", "optimizer.safetensors", "config.json"}) {
      all += ReadFile(saved / "step-8" / name);
    }
    return all;
  };
  const std::string weights = content(), metrics = StepsAndLosses(run);

  // As if the power had failed: step 4 is in the middle of the second epoch; step 6 is cut short.
  fs::remove_all(saved / "step-8");
  fs::resize_file(saved / "step-6/optimizer.safetensors",
                  fs::file_size(saved / "step-6/optimizer.safetensors") / 2);
  // Nor does the order in which instances come to memory change anything.
  const ProgramResult resumed = RunProgram(
      folder.path(),
      {"train", "--out", "run", "--resume", "--schedule-policy", "gate+defer", "--gate", "1"});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_TRUE(Holds(resumed.err, "step-6")) << "the broken one is named: " << resumed.err;
  EXPECT_TRUE(Holds(resumed.err, "resuming from run/checkpoints/step-4 (step 4 of 8)"))
      << resumed.err;
  EXPECT_EQ(content(), weights);
  EXPECT_EQ(StepsAndLosses(run), metrics) << "each step stands there once";

  // The folder of the checkpoints stands for the run.
  fs::remove_all(saved / "step-8");
  const ProgramResult folder_of =
      RunProgram(folder.path(), {"train", "--resume", "run/checkpoints"});
  ASSERT_EQ(folder_of.status, 0) << folder_of.err;
  EXPECT_EQ(content(), weights);

  // From a checkpoint by name, with a slash behind it as shells write it, and from another place.
  fs::remove_all(saved / "step-8");
  const ProgramResult named =
      RunProgram(saved, {"train", "--resume", "step-2/", "--data", "../../data"});
  ASSERT_EQ(named.status, 0) << named.err;
  EXPECT_FALSE(Holds(named.err, "changed for the rest of the run")) << "it is the same folder";
  EXPECT_EQ(content(), weights);
}

// Another folder gets all that it needs, also when there is no step left to take.
TEST(Resume, GoesOnInAnotherFolder) {
  const TemporaryFolder folder;
  ASSERT_EQ(TrainToTheEnd(folder).status, 0);
  const auto weights = [&](const std::string& run, int step) {
    return ReadFile(folder.path() / run / "checkpoints" / ("step-" + std::to_string(step)) /
                    "model.safetensors");
  };
  for (const auto& [from, out, first] :
       {std::tuple("run", "finished", 8), std::tuple("run/checkpoints/step-4", "half", 4)}) {
    const ProgramResult result =
        RunProgram(folder.path(), {"train", "--resume", from, "--out", out});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_TRUE(Holds(result.out, std::string(out) + "/checkpoints/step-8/")) << result.out;
    EXPECT_EQ(weights(out, first), weights("run", first));
    EXPECT_EQ(weights(out, 8), weights("run", 8));
    EXPECT_EQ(StepsAndLosses(folder.path() / out), StepsAndLosses(folder.path() / "run"));
    EXPECT_EQ(RunProgram(folder.path(), {"train", "--out", out, "--resume"}).status, 0);
  }
}

TEST(Resume, SaysWhatCannotBe) {
  const TemporaryFolder folder;
  ASSERT_EQ(TrainToTheEnd(folder).status, 0);
  const auto refused = [&](std::vector<std::string> words, const std::string& part) {
    words.insert(words.begin(), "train");
    const ProgramResult result = RunProgram(folder.path(), words);
    EXPECT_EQ(result.status, 2) << part << ": " << result.err;
    EXPECT_TRUE(Holds(result.err, part)) << result.err;
  };
  const std::string before = ReadFile(folder.path() / "run/metrics.jsonl");
  refused({"--data", "data", "--model", "resnet20", "--out", "run"}, "--resume");
  refused({"--out", "run", "--resume", "--batch", "4", "--seed", "0", "--lr", "0.1"},
          "--batch (was 8, now 4), --lr (was 0.05, now 0.1)");
  refused({"--out", "run", "--resume", "--schedule-policy", "barriered"},
          "--schedule-policy (was \"free\", now \"barriered\")");
  refused({"--out", "elsewhere", "--resume"}, "no whole checkpoint in elsewhere");
  refused({"--out", "run", "--resume", "nowhere"}, "nowhere");
  refused({"--out", "run", "--resume", "--best-metric", "loss"}, "the run is finished");
  fs::create_directories(folder.path() / "other/checkpoints");
  fs::copy(folder.path() / "run/checkpoints/step-2", folder.path() / "other/checkpoints/step-2");
  refused({"--out", "run", "--resume", "other"}, "run holds another run than other");
  // Other data: an image that is another, as many of other classes, another number of images.
  const fs::path image = folder.path() / "data/train/blue/00.png";
  const std::string blue = ReadFile(image);
  fs::copy_file(folder.path() / "data/train" / testing::kRed / "00.png", image,
                fs::copy_options::overwrite_existing);
  fs::remove(folder.path() / "data/parax-index.bin");
  refused({"--out", "run", "--resume"}, "other training images");
  WriteFileAtomically(image, blue);
  fs::remove(folder.path() / "data/parax-index.bin");
  fs::rename(folder.path() / "data/train/blue", folder.path() / "data/train/green");
  fs::rename(folder.path() / "data/val/blue", folder.path() / "data/val/green");
  refused({"--out", "run", "--resume"}, "other classes");
  fs::remove(folder.path() / "data/train/green/00.png");
  refused({"--out", "run", "--resume"}, "24 training images");
  EXPECT_EQ(ReadFile(folder.path() / "run/metrics.jsonl"), before);
}

// A run's own options are checked as those of a command line are.
TEST(Resume, ChecksTheOptionsOfTheRun) {
  const TemporaryFolder folder;
  ASSERT_EQ(TrainToTheEnd(folder).status, 0);
  CheckpointContent content =
      LoadCheckpoint(folder.path() / "run/checkpoints/step-4", CheckpointUse::kResume);
  const size_t at = content.state_json.find("keep = 9");
  ASSERT_NE(at, std::string::npos);
  content.state_json.replace(at, 8, "keep = 0");
  SaveCheckpoint(folder.path() / "edited/checkpoints", 4, content);
  const ProgramResult result = RunProgram(folder.path(), {"train", "--out", "edited", "--resume"});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(Holds(result.err, "--keep is 0")) << result.err;
}

TEST(Resume, RefusesAStepBeyondTheRun) {
  const TemporaryFolder folder;
  ASSERT_EQ(TrainToTheEnd(folder).status, 0);
  CheckpointContent content =
      LoadCheckpoint(folder.path() / "run/checkpoints/step-4", CheckpointUse::kResume);
  content.state_json.replace(content.state_json.find("\"step\": 4"), 9, "\"step\": 99");
  SaveCheckpoint(folder.path() / "edited/checkpoints", 99, content);
  const ProgramResult result = RunProgram(folder.path(), {"train", "--out", "edited", "--resume"});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(Holds(result.err, "step 99 is beyond the run's 8")) << result.err;
}

TEST(Resume, RefusesAStepThatIsNone) {
  RunState state;
  state.step = 3;
  EXPECT_EQ(ParseRunState(ToJson(state), "x").step, 3u);
  for (const char* step : {"-1", "1e300", "2.5", "\"3\""}) {
    std::string text = ToJson(state);
    text.replace(text.find("\"step\": 3"), 9, std::string("\"step\": ") + step);
    EXPECT_THROW(ParseRunState(text, "x"), Error) << step;
  }
}

TEST(Resume, AutoStartsOrGoesOn) {
  const TemporaryFolder folder;
  MakeData(folder.path() / "data");
  const auto command = TrainCommand({"--max-steps", "2", "--instances", "0", "--best-metric",
                                     "accuracy", "--out", "run", "--resume", "auto"});
  const ProgramResult first = RunProgram(folder.path(), command);
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_FALSE(Holds(first.err, "resuming"));
  const std::string weights = ReadFile(folder.path() / "run/checkpoints/step-2/model.safetensors");
  const ProgramResult second = RunProgram(folder.path(), command);
  ASSERT_EQ(second.status, 0) << second.err;
  EXPECT_TRUE(Holds(second.err, "step 2 of 2")) << second.err;
  EXPECT_EQ(ReadFile(folder.path() / "run/checkpoints/step-2/model.safetensors"), weights);
}

}  // namespace
}  // namespace parax
