// Signals and failures in the middle: what is lost, what stays.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>

#include "parax/base/file.h"
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

ProgramResult SignalWhen(const fs::path& folder, const std::vector<std::string>& command,
                         const std::string& printed, int signal, const std::string& input = "") {
  Program program(folder, command, input);
  EXPECT_TRUE(program.Await([&] { return Holds(program.Errors(), printed); })) << printed;
  program.Signal(signal);
  return program.Wait();
}

TEST(Stop, AFailingEvaluationLosesNoStep) {
  const TemporaryFolder folder;
  MakeData(folder.path() / "data");
  const fs::path val = folder.path() / "data/val";
  // Folders that look old are not read again: what breaks inside a file is not seen at the start.
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(1);
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(val)) {
    if (entry.is_directory()) {
      fs::last_write_time(entry.path(), old);
    } else {
      files.push_back(entry.path());
    }
  }
  // An epoch has three steps.
  const auto command = [](const std::string& out) {
    return TrainCommand({"--epochs", "2", "--lr", "0.05", "--save-every", "0", "--out", out});
  };
  const ProgramResult whole = RunProgram(folder.path(), command("whole"));
  ASSERT_EQ(whole.status, 0) << whole.err;

  std::vector<std::string> contents;
  for (const fs::path& file : files) {
    contents.push_back(ReadFile(file));
    std::ofstream(file) << "broken";
  }
  const ProgramResult failed = RunProgram(folder.path(), command("run"));
  EXPECT_EQ(failed.status, 1) << failed.err;
  EXPECT_TRUE(Holds(failed.err, "cannot be decoded") && Holds(failed.err, "; step 3 is saved"))
      << failed.err;
  ASSERT_TRUE(fs::exists(folder.path() / "run/checkpoints/step-3"));

  for (size_t i = 0; i < files.size(); ++i)
    std::ofstream(files[i], std::ios::binary) << contents[i];
  const ProgramResult resumed = RunProgram(folder.path(), {"train", "--out", "run", "--resume"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_TRUE(Holds(resumed.err, "step 3 (epoch 1.00): validation accuracy")) << resumed.err;
  for (const char* file : {"best.json", "step-6/model.safetensors"}) {
    EXPECT_EQ(ReadFile(folder.path() / "run/checkpoints" / file),
              ReadFile(folder.path() / "whole/checkpoints" / file))
        << file;
  }
}

// Not one image to judge by: no best step comes of that.
TEST(Stop, AnEvaluationOfNothingIsNone) {
  const TemporaryFolder folder;
  MakeData(folder.path() / "data");
  const fs::path val = folder.path() / "data/val";
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(val)) {
    if (!entry.is_regular_file()) continue;
    if (entry.path().extension() == ".png") files.push_back(entry.path());
  }
  const std::string picture = ReadFile(files.at(0));
  fs::remove_all(val);
  fs::create_directories(val / "blue");
  std::ofstream(val / "blue/1.png", std::ios::binary) << picture;
  const fs::path test = folder.path() / "data/test/blue";
  fs::create_directories(test);
  std::ofstream(test / "1.png", std::ios::binary) << picture;
  const auto command = [](const std::string& out) {
    return TrainCommand({"--max-steps", "3", "--out", out});
  };
  ASSERT_EQ(RunProgram(folder.path(), command("first")).status, 0);
  // Folders that look old are not read again: what breaks inside a file is not seen at the start.
  const auto breaks = [&](const fs::path& folder_of) {
    fs::last_write_time(folder_of, fs::file_time_type::clock::now() - std::chrono::hours(1));
    ASSERT_EQ(RunProgram(folder.path(), command("again-" + folder_of.parent_path().stem().string()))
                  .status,
              0);
    std::ofstream(folder_of / "1.png") << "broken";
  };
  breaks(test);
  const ProgramResult tested = RunProgram(folder.path(), command("tested"));
  EXPECT_EQ(tested.status, 1);
  EXPECT_TRUE(Holds(tested.out, "validation accuracy") && Holds(tested.out, "SHA-256"))
      << "what was measured is still told: " << tested.out;
  EXPECT_FALSE(Holds(tested.out, "test accuracy"));
  std::ofstream(test / "1.png", std::ios::binary) << picture;
  breaks(val / "blue");
  for (const std::vector<std::string>& words :
       {command("run"), {"eval", "--model", "first", "--data", "data"}}) {
    const ProgramResult result = RunProgram(folder.path(), words);
    EXPECT_EQ(result.status, 1) << result.err;
    EXPECT_TRUE(Holds(result.err, "none of 1 images")) << result.err;
  }
  EXPECT_FALSE(fs::exists(folder.path() / "run/checkpoints/best.json"));
}

// `timeout -s INT` signals the program and its group: that is no impatient user.
TEST(Stop, TwoInterruptsAtOnceAreOne) {
  const TemporaryFolder folder;
  MakeData(folder.path() / "data");
  const fs::path metrics = folder.path() / "run/metrics.jsonl";
  Program program(folder.path(), TrainCommand({"--max-steps", "19000", "--out", "run",
                                               "--eval-every", "0", "--save-every", "0"}));
  ASSERT_TRUE(program.Await([&] { return fs::exists(metrics) && fs::file_size(metrics) > 0; }));
  program.Signal(SIGINT);
  program.Signal(SIGINT);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.status, 130) << result.err;
  EXPECT_TRUE(Holds(result.out, "saved in run/checkpoints/step-")) << result.out;
}

TEST(Stop, DoesNotWaitForAnEvaluation) {
  const TemporaryFolder folder;
  MakeData(folder.path() / "data");
  const fs::path blue = folder.path() / "data/val/blue";
  for (int i = 0; i < 2000; ++i) {
    fs::create_hard_link(blue / "13.jpg", blue / ("copy" + std::to_string(i) + ".jpg"));
  }
  Program program(folder.path(), TrainCommand({"--max-steps", "20", "--eval-every", "0", "--out",
                                               "run", "--workers", "1"}));
  // The warning of a broken file tells that the evaluation has begun.
  ASSERT_TRUE(program.Await([&] { return Holds(program.Errors(), "plan "); }));
  std::ofstream(blue / "12.png") << "broken";
  ASSERT_TRUE(program.Await([&] { return Holds(program.Errors(), "cannot be decoded"); }));
  program.Signal(SIGTERM);
  const ProgramResult stopped = program.Wait();
  EXPECT_EQ(stopped.status, 130) << stopped.err;
  EXPECT_TRUE(Holds(stopped.out, "saved in run/checkpoints/step-20")) << stopped.out;
  EXPECT_FALSE(Holds(stopped.err, "validation accuracy")) << stopped.err;
  const ProgramResult resumed = RunProgram(folder.path(), {"train", "--out", "run", "--resume"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_TRUE(Holds(resumed.err, "step 20 (epoch 6.67): validation accuracy")) << resumed.err;
  EXPECT_TRUE(fs::exists(folder.path() / "run/checkpoints/best.json"));
}

TEST(Stop, BeforeTheFirstStepLeavesNothing) {
  const TemporaryFolder folder;
  MakeData(folder.path() / "data");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const ProgramResult result = SignalWhen(
        folder.path(),
        TrainCommand({"--layout", "auto", "--tune", "auto", "--image-size", "48", "--out", "run"}),
        "1 instance on ", signal);
    EXPECT_EQ(result.status, 130) << result.err;
    EXPECT_TRUE(result.err.ends_with("\ninterrupted\n")) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_FALSE(fs::exists(folder.path() / "run"));
  }
}

// As a signal leaves nothing, so does a run that cannot begin.
TEST(Stop, ARunThatCannotBeginLeavesNothing) {
  const TemporaryFolder folder;
  MakeData(folder.path() / "data");
  const ProgramResult result =
      RunProgram(folder.path(), TrainCommand({"--init-from", "nowhere", "--out", "run"}));
  EXPECT_NE(result.status, 0);
  EXPECT_FALSE(fs::exists(folder.path() / "run")) << result.err;
}

TEST(Stop, EndsPredictionAtOnce) {
  const TemporaryFolder folder;
  MakeData(folder.path() / "data");
  ASSERT_EQ(RunProgram(folder.path(), TrainCommand({"--max-steps", "1", "--out", "run"})).status,
            0);
  std::string list;
  for (int i = 0; i < 50'000; ++i) list += "data/val/blue/13.jpg\n";
  for (const int signal : {SIGINT, SIGTERM}) {
    const ProgramResult result =
        SignalWhen(folder.path(), {"predict", "--model", "run", "--out", "labels.csv", "-"},
                   "model: ", signal, list);
    EXPECT_EQ(result.status, 130) << result.err;
    EXPECT_TRUE(result.err.ends_with("\ninterrupted\n")) << result.err;
    EXPECT_FALSE(fs::exists(folder.path() / "labels.csv"));
  }
}

TEST(Stop, NohupOutlivesTheConnection) {
  const TemporaryFolder folder;
  MakeData(folder.path() / "data");
  std::signal(SIGHUP, SIG_IGN);  // a child inherits it
  const ProgramResult result = SignalWhen(
      folder.path(), TrainCommand({"--max-steps", "20", "--out", "run"}), "1 instance on ", SIGHUP);
  std::signal(SIGHUP, SIG_DFL);
  EXPECT_EQ(result.status, 0) << result.err;
}

}  // namespace
}  // namespace parax
