// --precision bf16 from the command line, and what becomes of it on a CPU without.
#include <gtest/gtest.h>

#include <cstdlib>

#include "parax/base/file.h"
#include "parax/layers/library.h"
#include "tests/cli/program.h"

namespace parax {
namespace {

namespace fs = std::filesystem;
using testing::Holds;
using testing::ProgramResult;
using testing::RunProgram;
using testing::TemporaryFolder;
using testing::TrainCommand;

// Makes the program's CPU one without AVX-512.
class OnlyAvx2 {
 public:
  OnlyAvx2() { setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1); }
  ~OnlyAvx2() { unsetenv("ONEDNN_MAX_CPU_ISA"); }
};

// Trains `folder`/run for four steps, with checkpoints after two and four.
ProgramResult Train(const TemporaryFolder& folder, std::vector<std::string> more) {
  testing::MakeData(folder.path() / "data");
  more.insert(more.end(), {"--max-steps", "4", "--save-every", "2", "--lr", "0.05", "--resize",
                           "16", "--out", "run"});
  return RunProgram(folder.path(), TrainCommand(more));
}

TEST(Precision, EmulatedRunsResumeInTheSameBits) {
  const TemporaryFolder folder;
  const ProgramResult trained = Train(folder, {"--precision", "bf16", "--emulate"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const fs::path last = folder.path() / "run/checkpoints/step-4";
  const std::string weights = ReadFile(last / "model.safetensors");
  EXPECT_TRUE(Holds(ReadFile(last / "plan.json"), "\"precision\": \"bf16\""));
  EXPECT_TRUE(Holds(ReadFile(last / "plan.json"), "emulated:"));

  fs::remove_all(last);
  const ProgramResult resumed = RunProgram(folder.path(), {"train", "--out", "run", "--resume"});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(ReadFile(last / "model.safetensors"), weights);

  const ProgramResult other =
      RunProgram(folder.path(), {"train", "--out", "run", "--resume", "--precision", "fp32"});
  EXPECT_EQ(other.status, 2);
  EXPECT_TRUE(Holds(other.err, "--precision (was \"bf16\", now \"fp32\")")) << other.err;
  const ProgramResult plan = RunProgram(
      folder.path(), TrainCommand({"--plan", "run/plan.json", "--max-steps", "1", "--out", "b"}));
  EXPECT_EQ(plan.status, 2);
  EXPECT_TRUE(Holds(plan.err, "is one for --precision bf16, not fp32")) << plan.err;
}

TEST(Precision, EveryCommandEmulatesAndNoneDoesUnasked) {
  const TemporaryFolder folder;
  ASSERT_EQ(Train(folder, {}).status, 0);
  EXPECT_EQ(RunProgram(folder.path(), {"plan", "--model", "resnet20", "--emulate"}).status, 2);
  const OnlyAvx2 only_avx2;
  const std::vector<std::vector<std::string>> commands = {
      TrainCommand({"--max-steps", "1", "--out", "run2"}),
      {"eval", "--model", "run", "--data", "data"},
      {"predict", "--model", "run", "data/val/blue"},
      {"plan", "--model", "resnet20", "--tune", "off"},
      {"bench", "--model", "resnet20", "--seconds", "0.1", "--batch", "4", "--tune", "off"},
      {"bench", "--model", "resnet20", "--seconds", "0.1", "--batch", "4", "--mode", "infer"}};
  for (std::vector<std::string> command : commands) {
    command.insert(command.end(), {"--instances", "1", "--precision", "bf16"});
    const bool made = fs::exists(folder.path() / "run2");
    const ProgramResult refused = RunProgram(folder.path(), command);
    EXPECT_EQ(refused.status, 2) << command[0] << refused.err;
    EXPECT_TRUE(Holds(refused.err, "bf16 needs a CPU with AVX512-BF16 or AMX")) << refused.err;
    EXPECT_TRUE(Holds(refused.err, "--precision bf16 --emulate")) << refused.err;
    EXPECT_EQ(fs::exists(folder.path() / "run2"), made) << "it makes no folder";
    command.push_back("--emulate");
    const ProgramResult result = RunProgram(folder.path(), command);
    EXPECT_EQ(result.status, 0) << command[0] << result.err;
    fs::remove_all(folder.path() / "run2");
  }
}

TEST(Precision, TrainsEvaluatesAndTunesNatively) {
  if (!HasBf16()) GTEST_SKIP() << KernelLibrary() << " has no bf16";
  const TemporaryFolder folder;
  const ProgramResult trained = Train(folder, {"--precision", "bf16"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  for (std::vector<std::string> command : std::vector<std::vector<std::string>>{
           {"eval", "--model", "run", "--data", "data"},
           {"predict", "--model", "run", "data/val/blue"},
           {"tune", "--model", "resnet20", "--micro-batch", "2", "--instances", "1"},
           {"bench", "--model", "resnet20", "--seconds", "0.1", "--batch", "4"}}) {
    command.insert(command.end(), {"--precision", "bf16"});
    const ProgramResult result = RunProgram(folder.path(), command);
    EXPECT_EQ(result.status, 0) << command[0] << result.err;
  }
}

}  // namespace
}  // namespace parax
