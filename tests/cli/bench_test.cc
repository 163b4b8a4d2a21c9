#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "parax/cli/bench_timing.h"
#include "parax/numa/seat.h"
#include "tests/cli/program.h"

namespace parax {
namespace {

using nlohmann::json;
using testing::Holds;
using testing::ProgramResult;
using testing::RunProgram;
using testing::TemporaryFolder;

TEST(WindowRates, CountWorkThatReachesIntoAWindowInProportion) {
  // Two workers, one twice as fast; the first window has both, the last one only half of a piece.
  const std::vector<TimedWork> work = {{0, 2, 8}, {0, 1, 8}, {1, 2, 8}, {2, 4, 8}, {3, 4, 2}};
  const Rates rates = WindowRates(work, 0, 4, 4);  // 12, 12, 4, 6
  EXPECT_DOUBLE_EQ(rates.median, 9);
  EXPECT_DOUBLE_EQ(rates.lowest, 4);
  EXPECT_DOUBLE_EQ(rates.highest, 12);
  EXPECT_DOUBLE_EQ(WindowRates(work, 1, 4, 3).median, 6) << "what lies before does not count";
}

TEST(Latencies, AreThoseOfTheNearestRank) {
  std::vector<TimedWork> work;
  for (int i = 200; i > 0; --i) work.push_back({1, 1 + i / 1024.0, 1});
  const Latencies latencies = LatenciesOf(work);
  EXPECT_DOUBLE_EQ(latencies.p50, 100 / 1024.0);
  EXPECT_DOUBLE_EQ(latencies.p90, 180 / 1024.0);
  EXPECT_DOUBLE_EQ(latencies.p99, 198 / 1024.0);
  EXPECT_DOUBLE_EQ(LatenciesOf({{0, 3, 1}}).p99, 3);
}

json Bench(const TemporaryFolder& folder, const std::vector<std::string>& more) {
  std::vector<std::string> command = {"bench", "--seconds", "0.2",  "--instances",
                                      "1",     "--layout",  "nhwc", "--winograd",
                                      "false", "--json"};
  command.insert(command.end(), more.begin(), more.end());
  const ProgramResult result = RunProgram(folder.path(), command);
  EXPECT_EQ(result.status, 0) << result.err;
  return json::parse(result.out);
}

TEST(Bench, MeasuresTrainingAndInference) {
  const TemporaryFolder folder;
  for (const char* mode : {"train", "infer"}) {
    const json report =
        Bench(folder, {"--model", "resnet20", "--mode", mode, "--batch", "8", "--tune", "off"});
    EXPECT_EQ(report["mode"], mode);
    EXPECT_EQ(report["batch"], 8);
    EXPECT_EQ(report["latency_images"], 8);
    const double rate = report["images_per_s"];
    EXPECT_GE(rate, report["images_per_s_lowest"]);
    EXPECT_LE(rate, report["images_per_s_highest"]);
    EXPECT_LE(report["latency_ms"]["p50"], report["latency_ms"]["p99"]);
    // 41 million multiply-adds an image, and twice as many again backward (He et al. 2016).
    const double flops = 2 * 40.8e6 * (std::string(mode) == "train" ? 3 : 1);
    EXPECT_NEAR(report["gflops_per_s"].get<double>() / rate, flops / 1e9, 0.05 * flops / 1e9);
    EXPECT_GT(report["efficiency"], 0);
    EXPECT_LT(report["efficiency"], 1) << "direct convolutions can't beat multiply-adds alone";
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "runs")) << "it writes nothing";
}

TEST(Bench, ProfileNamesEveryKindAndAddsUp) {
  const TemporaryFolder folder;
  const json report = Bench(folder, {"--model", "resnet20", "--mode", "train", "--batch", "8",
                                     "--tune", "off", "--profile"});
  const json& profile = report["profile"];
  EXPECT_EQ(profile["mode"], "training");
  const double seconds = profile["seconds"];
  double parts = 0, kinds = 0, ops = 0;
  for (const json& part : profile["parts"]) parts += part.get<double>();
  EXPECT_NEAR(parts, seconds, 1e-6 * seconds);
  EXPECT_LT(std::abs(profile["parts"]["other"].get<double>()), 0.1 * seconds)
      << "what an instance does has a name";
  std::set<std::string> names;
  for (const json& kind : profile["kinds"]) {
    names.insert(kind["name"]);
    kinds += kind["seconds"].get<double>();
  }
  EXPECT_EQ(names,
            (std::set<std::string>{
                "batch_norm backward", "batch_norm forward", "channel_pad backward data",
                "channel_pad forward", "conv backward data", "conv backward weights",
                "conv forward", "global_avg_pool backward data", "global_avg_pool forward",
                "gradient sum backward data", "linear backward data", "linear backward weights",
                "linear forward", "loss backward data", "loss forward"}));
  for (const json& op : profile["ops"]) {
    ops += op["seconds"].get<double>();
    EXPECT_EQ(op["runs"].get<int64_t>() * 8, profile["images"]) << op["name"] << op["kind"];
    EXPECT_TRUE(names.contains(op["kind"]));
  }
  EXPECT_NEAR(kinds, profile["parts"]["ops"], 1e-6 * seconds);
  EXPECT_NEAR(ops, kinds, 1e-6 * seconds);
  EXPECT_GE(profile["images_per_s"], 0.8 * report["images_per_s_lowest"].get<double>());
  EXPECT_LE(profile["images_per_s"], 1.2 * report["images_per_s_highest"].get<double>());
  EXPECT_NEAR(profile["gflop_an_image"], 6 * 40.8e-3, 0.05 * 6 * 40.8e-3);
  EXPECT_NEAR(profile["engine_efficiency"], kinds / seconds, 1e-6);
  EXPECT_GT(profile["reduction_share"], 0);
  EXPECT_LE(profile["lost_to_others"], seconds);
  for (const char* key : {"flop_share_of_peak", "peak_gflops_per_s", "peak_gbytes_per_s"}) {
    EXPECT_GT(profile[key], 0) << key;
  }
  EXPECT_FALSE(
      Bench(folder, {"--model", "resnet20", "--batch", "8", "--tune", "off"}).contains("profile"));
}

TEST(Bench, TakesARunFolder) {
  const TemporaryFolder folder;
  testing::TrainRun(folder.path());
  const json report = Bench(folder, {"--model", "run", "--mode", "infer", "--batch", "2"});
  EXPECT_EQ(report["model"], "resnet20");
  EXPECT_EQ(report["batch"], 2);
  EXPECT_GT(report["images_per_s"], 0);
}

TEST(Bench, RunsEverySchedulePolicy) {
  const TemporaryFolder folder;
  for (const char* policy : {"free", "stagger", "gate", "gate+defer"}) {
    const char* mode = std::string(policy) == "gate" ? "infer" : "train";
    const json report =
        Bench(folder, {"--model", "resnet20", "--mode", mode, "--batch", "8", "--image-size", "16",
                       "--tune", "off", "--schedule-policy", policy, "--gate", "1"});
    EXPECT_EQ(report["schedule_policy"], policy);
    EXPECT_GT(report["images_per_s"], 0);
  }
  const std::vector<std::string> barriered = {
      "bench",    "--model", "resnet20", "--batch",   "8",   "--image-size",
      "16",       "--tune",  "off",      "--seconds", "0.2", "--schedule-policy",
      "barriered"};
  std::vector<std::string> as_json = barriered;
  as_json.emplace_back("--json");
  const ProgramResult run = RunProgram(folder.path(), as_json);
  ASSERT_EQ(run.status, 0) << run.err;
  const Topology topology = DetectTopology();
  const json report = json::parse(run.out);
  EXPECT_EQ(report["instances"], PlanSeats(topology, {0, 0, 0}).seats.size());
  EXPECT_EQ(report["cores_per_instance"], PlanSeats(topology, {0, 0, 0}).seats[0].pus.size());
  std::vector<std::string> wrong = barriered;
  wrong.insert(wrong.end(), {"--instances", "999"});
  const ProgramResult refused = RunProgram(folder.path(), wrong);
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(Holds(refused.err, "leave out --instances 999")) << refused.err;
}

TEST(Bench, SaysHowManyMayBeAtMemoryAtOnce) {
  const TemporaryFolder folder;
  const auto said = [&](const std::vector<std::string>& more) {
    std::vector<std::string> command = {"bench", "--model",      "resnet20", "--batch",
                                        "8",     "--image-size", "16",       "--tune",
                                        "off",   "--seconds",    "0.1"};
    command.insert(command.end(), more.begin(), more.end());
    return RunProgram(folder.path(), command).err;
  };
  const std::string text = said({"--instances", "1", "--schedule-policy", "gate"});
  EXPECT_TRUE(Holds(text, "1 of 1 instances may be at memory-bound ops at once, so nobody"))
      << text;
  EXPECT_TRUE(Holds(said({"--gate", "2"}), "--gate has no effect without"));
  EXPECT_TRUE(Holds(said({"--schedule-policy", "gate", "--defer-memory", "0.2"}),
                    "--defer-memory has no effect without"));
}

TEST(Bench, SaysInWordsWhatItMeasured) {
  const TemporaryFolder folder;
  const ProgramResult result =
      RunProgram(folder.path(), {"bench", "--model", "resnet20", "--mode", "infer", "--seconds",
                                 "0.1", "--instances", "1", "--cores-per-instance", "all",
                                 "--batch", "1", "--bn-group", "1"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(Holds(result.out, "resnet20 inference: ")) << result.out;
  EXPECT_TRUE(Holds(result.out, "batch of 1 image: ")) << result.out;
  EXPECT_TRUE(Holds(result.err, "--bn-group has no effect without --mode train")) << result.err;
}

TEST(Bench, RefusesWhatItCannotDo) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::vector<std::string>& more) {
    std::vector<std::string> command = {"bench"};
    command.insert(command.end(), more.begin(), more.end());
    const ProgramResult result = RunProgram(folder.path(), command);
    EXPECT_EQ(result.status, 2);
    return result.err;
  };
  EXPECT_TRUE(Holds(refused({}), "--model is missing"));
  EXPECT_TRUE(Holds(refused({"--model", "resnet21"}), "no model is called 'resnet21'"));
  EXPECT_TRUE(Holds(refused({"--model", "runs/none"}), "runs/none is neither a checkpoint nor"));
  EXPECT_TRUE(Holds(refused({"--model", "resnet20", "--mode", "test"}), "train, infer"));
  EXPECT_TRUE(Holds(refused({"--model", "resnet20", "--seconds", "0"}), "--seconds is 0"));
  EXPECT_TRUE(Holds(refused({"--model", "resnet20", "--cores-per-instance", "0"}), "or all"));
  EXPECT_TRUE(Holds(refused({"--model", "resnet20", "--modle", "x"}), "did you mean"));
}

}  // namespace
}  // namespace parax
