#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "parax/numa/topology.h"
#include "tests/cli/program.h"

namespace parax {
namespace {

using nlohmann::json;
using testing::Holds;
using testing::ProgramResult;
using testing::RunProgram;
using testing::TemporaryFolder;

std::vector<std::string> Command(const std::vector<std::string>& more) {
  std::vector<std::string> command = {"sim",      "--seconds",  "0.2",  "--model",
                                      "resnet20", "--tune",     "off",  "--layout",
                                      "nhwc",     "--winograd", "false"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

json Simulated(const TemporaryFolder& folder, const std::vector<std::string>& more) {
  std::vector<std::string> command = Command(more);
  command.push_back("--json");
  const ProgramResult result = RunProgram(folder.path(), command);
  EXPECT_EQ(result.status, 0) << result.err;
  const json report = json::parse(result.out);
  EXPECT_EQ(report["simulated"], true);
  return report;
}

std::string Described(const TemporaryFolder& folder) {
  const auto file = folder.path() / "m.toml";
  std::ofstream(file) << "name = \"2x4\"\nsockets = 2\ndomains = 2\ncores_per_domain = 4\n"
                         "gflops_per_core = 100\nbandwidth_cores = [1, 4]\n"
                         "bandwidth_gbytes = [10, 12]\nremote_factor = 1.5\n"
                         "l2_mib_per_core = 1\nl3_mib_per_domain = 8\n";
  return file.string();
}

TEST(Sim, SimulatesTheMachineAtHand) {
  const TemporaryFolder folder;
  const auto cores = static_cast<int>(DetectTopology().cores.size());
  const json report = Simulated(folder, {"--policy", "free", "--batch", std::to_string(4 * cores)});
  ASSERT_EQ(report["results"].size(), 1);
  const json row = report["results"][0];
  EXPECT_EQ(row["instances"], cores);
  EXPECT_GT(row["images_per_s"], 10);
  EXPECT_LT(row["images_per_s"], 1e5);
}

TEST(Sim, SweepsPoliciesAndCoresOnAnotherMachine) {
  if (DetectTopology().cores.size() < 2) GTEST_SKIP() << "k threads can't be measured";
  const TemporaryFolder folder;
  const json report =
      Simulated(folder, {"--machine", Described(folder), "--sweep", "--batch", "32"});
  EXPECT_EQ(report["machine"], "2x4");
  ASSERT_EQ(report["results"].size(), 1 + 4 * 3);
  EXPECT_EQ(report["results"][0]["policy"], "barriered");
  EXPECT_EQ(report["results"][0]["instances"], 2);
  for (const json& row : report["results"]) {
    EXPECT_EQ(row["instances"].get<int>() * row["cores_per_instance"].get<int>(), 8);
    EXPECT_GT(row["images_per_s"], 0);
    EXPECT_LE(row["most_gbytes_per_s"], 12.001);
  }
}

TEST(Sim, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  const auto error = [&](const std::vector<std::string>& more) {
    const ProgramResult result = RunProgram(folder.path(), Command(more));
    EXPECT_EQ(result.status, 2) << result.err;
    return result.err;
  };
  EXPECT_TRUE(Holds(error({"--policy", "gates"}), "gate"));
  const std::string file = Described(folder);
  EXPECT_TRUE(Holds(error({"--machine", file, "--cores-per-instance", "5"}),
                    "--cores-per-instance is 5; a NUMA domain of 2x4 has 4"));
  EXPECT_TRUE(Holds(error({"--machine", file, "--instances", "9"}), "into 2x4 fit 8 of 1"));
  EXPECT_TRUE(
      Holds(error({"--machine", file, "--policy", "free", "--batch", "12"}), "a multiple of 8"));
}

}  // namespace
}  // namespace parax
