#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "parax/base/file.h"
#include "parax/base/sha256.h"
#include "tests/cli/program.h"

namespace parax {
namespace {

namespace fs = std::filesystem;
using testing::Holds;
using testing::MakeData;
using testing::Program;
using testing::ProgramResult;
using testing::RunProgram;
using testing::TemporaryFolder;
using testing::TrainCommand;

std::string Weights(const fs::path& run, int step) {
  return ReadFile(run / "checkpoints" / ("step-" + std::to_string(step)) / "model.safetensors");
}

std::string LastLine(const std::string& text) {
  if (text.empty()) return "";
  const size_t begin = text.find_last_of('\n', text.size() - 2);
  return text.substr(begin == std::string::npos ? 0 : begin + 1);
}

TEST(Train, FillsTheRunFolder) {
  const TemporaryFolder folder;
  MakeData(folder.path() / "data");
  const ProgramResult result = RunProgram(
      folder.path(), TrainCommand({"--max-steps", "5", "--out", "my run", "--save-every", "2"}));
  ASSERT_EQ(result.status, 0) << result.err;
  const fs::path run = folder.path() / "my run";
  for (const char* name : {"config.toml", "plan.json", "metrics.jsonl", "report.html",
                           "checkpoints/best.json", "checkpoints/step-4/optimizer.safetensors",
                           "checkpoints/step-5/config.json", "checkpoints/step-5/plan.json"}) {
    EXPECT_TRUE(fs::exists(run / name)) << name;
  }
  std::ifstream metrics(run / "metrics.jsonl");
  int lines = 0;
  for (std::string line; std::getline(metrics, line); ++lines) {
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json["step"], lines + 1);
    for (const char* key : {"epoch", "loss", "lr", "images_per_s"}) EXPECT_TRUE(json.contains(key));
    // An epoch has three steps: the validation images are looked at after it, and in the end.
    EXPECT_EQ(json.contains("val_accuracy"), lines + 1 == 3 || lines + 1 == 5) << line;
  }
  EXPECT_EQ(lines, 5);
  Sha256 digest;
  const std::string weights = Weights(run, 5);
  digest.Update(std::as_bytes(std::span(weights)));
  EXPECT_TRUE(Holds(result.out, digest.Finish())) << result.out;
  // Ready to paste into a shell.
  EXPECT_TRUE(Holds(result.out, "  parax eval --model 'my run' --data data\n")) << result.out;
  EXPECT_FALSE(Holds(result.out, "--resume")) << "it is finished";
  EXPECT_TRUE(Holds(result.err, "1 instance on ")) << result.err;
  EXPECT_TRUE(Holds(result.err, "validation accuracy"));
  EXPECT_FALSE(Holds(result.out, "validation: ")) << "logs go to standard error";

  // The run's own config file trains the same weights again.
  const ProgramResult again =
      RunProgram(folder.path(), {"train", "--config", "my run/config.toml", "--out", "again",
                                 "--plan", "my run/plan.json", "--json"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(Weights(folder.path() / "again", 5), weights);
  const auto json = nlohmann::json::parse(again.out);
  EXPECT_EQ(json["step"], 5);
  EXPECT_EQ(json["checkpoint"], "again/checkpoints/step-5");
  EXPECT_EQ(again.err, "") << "--json leaves only the JSON";

  const ProgramResult other =
      RunProgram(folder.path(), TrainCommand({"--layout", "blocked", "--plan", "my run/plan.json",
                                              "--out", "other", "--quiet"}));
  EXPECT_EQ(other.status, 2);
  EXPECT_EQ(other.err,
            "error: --layout blocked contradicts --plan my run/plan.json, which has other layouts: "
            "leave one out\n");
  EXPECT_FALSE(fs::exists(folder.path() / "other"));
}

TEST(Train, NamesTheLayerOfAGradientThatIsNotFinite) {
  const TemporaryFolder folder;
  MakeData(folder.path() / "data");
  const ProgramResult result = RunProgram(
      folder.path(), TrainCommand({"--weight-decay", "1e30", "--lr", "1", "--warmup", "0",
                                   "--max-steps", "9", "--save-every", "0", "--out", "run"}));
  EXPECT_EQ(result.status, 1) << result.err;
  const std::string line = LastLine(result.err);
  EXPECT_FALSE(Holds(line, "parameter ")) << line;
  EXPECT_TRUE(Holds(line, "not finite")) << line;
}

// The last step's weights can be finite and of no use all the same.
TEST(Train, FailsWhenItsOutputsAreNotFinite) {
  const TemporaryFolder folder;
  MakeData(folder.path() / "data");
  const ProgramResult result = RunProgram(
      folder.path(),
      TrainCommand({"--max-steps", "1", "--lr", "1e38", "--warmup", "0", "--out", "run"}));
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_TRUE(Holds(LastLine(result.err), "outputs are not finite")) << result.err;
}

// One line on standard error, and the exit status 2 for what can never work, 1 for what failed.
TEST(Train, RefusesInOneLine) {
  const TemporaryFolder folder;
  MakeData(folder.path() / "data");
  fs::create_directories(folder.path() / "empty/train");
  std::ofstream(folder.path() / "file") << "x";
  const auto refused = [&](std::vector<std::string> more, int status, const std::string& part) {
    const ProgramResult result = RunProgram(folder.path(), TrainCommand(more));
    EXPECT_EQ(result.status, status) << part << ": " << result.err;
    const std::string line = LastLine(result.err);
    EXPECT_TRUE(line.starts_with("error: ") && Holds(line, part)) << part << ": " << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_FALSE(fs::exists(folder.path() / "runs")) << "made before it was refused: " << part;
  };
  refused({"--lr", "fast"}, 2, "--lr is 'fast'; it must be a number");
  refused({"--lr", "nan"}, 2, "--lr is 'nan'");
  refused({"--bn-group", "3"}, 2, "use --batch 6 or 9, or another --bn-group");
  refused({"--epoch", "1"}, 2, "did you mean --epochs?");
  refused({"--model", "resnet21"}, 2, "did you mean");
  refused({"--data", "nowhere"}, 1, "nowhere is not a folder");
  refused({"--data", "empty"}, 1, "empty holds no class folders with images");
  refused({"--data", "data/train/blue"}, 1, "data/train/blue");
  refused({"--out", "file/run"}, 1, "can't create the output folder file/run");
  refused({"--config", "nowhere.toml"}, 1, "nowhere.toml");
  refused({"--config", "/dev/zero"}, 1, "/dev/zero is not a regular file");
  refused({"--plan", "/dev/zero"}, 1, "/dev/zero is not a regular file");
  refused({"--resume"}, 2, "--resume needs --out");
  refused({"--class-weights", "1,2,3"}, 2, "3 numbers for 2 classes");
  refused({"--class-weights", "0,0"}, 2, "--class-weights is '0,0': with all weights 0");
  refused({"--class-weights", "1,inf"}, 2, "--class-weights is '1,inf'");
  refused({"--classes", "7"}, 2, "--classes is 7, but data has 2 class folders");
  refused({"--warmup", "5m"}, 2, "--warmup can't be a time");
  refused({"--freeze", "convolution"}, 2, "'convolution'");
  refused({"--batch", "4", "--instances", "1", "--cores-per-instance", "4096"}, 2, "4096");
  refused({"--pad", "16"}, 2, "--pad is 16; it must be less than the image size, 16");
  refused({"--resize", "15"}, 2, "--resize is 15; it must be at least the image size, 16");
  refused({"--init-from", "nowhere"}, 1, "nowhere: there is no such file");
  refused({"--drop-last", "--batch", "50"}, 2, "--drop-last with --batch 50");
}

TEST(Train, StopsAtALossThatIsNotFinite) {
  const TemporaryFolder folder;
  MakeData(folder.path() / "data");
  for (const std::string policy : {"commit", "eager"}) {
    const ProgramResult result = RunProgram(
        folder.path(), TrainCommand({"--lr", "1e30", "--warmup", "0", "--max-steps", "50", "--out",
                                     policy, "--update-policy", policy, "--save-every", "1"}));
    EXPECT_EQ(result.status, 1) << result.err;
    const std::string line = LastLine(result.err);
    EXPECT_TRUE(line.starts_with("error: ") && Holds(line, "step ") && Holds(line, "not finite") &&
                Holds(line, "is untouched"))
        << result.err;
    EXPECT_TRUE(Holds(line, "conv") || Holds(line, "layer") || Holds(line, "linear")) << line;
    for (const auto& entry : fs::directory_iterator(folder.path() / policy / "checkpoints")) {
      if (!entry.is_directory()) continue;
      const std::string bytes = ReadFile(entry.path() / "model.safetensors");
      uint64_t header = 0;
      std::copy_n(bytes.data(), sizeof header, reinterpret_cast<char*>(&header));
      std::vector<float> values((bytes.size() - 8 - header) / sizeof(float));
      std::copy_n(bytes.data() + 8 + header, values.size() * sizeof(float),
                  reinterpret_cast<char*>(values.data()));
      EXPECT_TRUE(std::ranges::all_of(values, [](float v) { return std::isfinite(v); }))
          << entry.path();
    }
  }
}

TEST(Train, SavesWhenInterrupted) {
  const TemporaryFolder folder;
  MakeData(folder.path() / "data");
  const fs::path metrics = folder.path() / "run/metrics.jsonl";
  for (const int number : {SIGINT, SIGTERM}) {
    std::vector<std::string> command = {"train", "--out", "run", "--resume"};
    if (number == SIGINT) {
      command = TrainCommand(
          {"--max-steps", "19000", "--out", "run", "--eval-every", "0", "--save-every", "0"});
    }
    const auto before = fs::exists(metrics) ? fs::file_size(metrics) : 0;
    Program program(folder.path(), command);
    ASSERT_TRUE(program.Await([&] {
      return fs::exists(metrics) && fs::file_size(metrics) > before;
    })) << program.Wait().err;
    program.Signal(number);
    const ProgramResult result = program.Wait();
    EXPECT_EQ(result.status, 130) << result.err;
    EXPECT_TRUE(Holds(result.out, "interrupted after step ")) << result.out;
    EXPECT_TRUE(Holds(result.out, "; saved in run/checkpoints/step-")) << result.out;
    EXPECT_EQ(Holds(result.err, "resuming from run/checkpoints/step-"), number == SIGTERM);
  }
}

TEST(Train, StopsEarlyAndStaysStopped) {
  const TemporaryFolder folder;
  MakeData(folder.path() / "data");
  // Without learning nothing ever becomes better than the first evaluation.
  const ProgramResult result =
      RunProgram(folder.path(), TrainCommand({"--lr", "0", "--freeze-norm", "--epochs", "50",
                                              "--patience", "2", "--out", "run"}));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(Holds(result.out, "stopped early: 2 evaluations in a row were no better than step 3"))
      << result.out;
  EXPECT_TRUE(fs::exists(folder.path() / "run/checkpoints/step-9"));
  const std::string metrics = ReadFile(folder.path() / "run/metrics.jsonl");
  const ProgramResult again =
      RunProgram(folder.path(), {"train", "--out", "run", "--resume", "--quiet"});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_TRUE(Holds(again.out, "stopped early")) << again.out;
  EXPECT_EQ(ReadFile(folder.path() / "run/metrics.jsonl"), metrics) << "no step was taken";
}

}  // namespace
}  // namespace parax
