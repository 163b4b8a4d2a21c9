// eval, and what train measures in the end.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "parax/base/file.h"
#include "parax/cli/npy.h"
#include "parax/cli/session.h"
#include "parax/engine/checkpoint.h"
#include "tests/cli/program.h"

namespace parax {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::Holds;
using testing::kRed;
using testing::MakeData;
using testing::ProgramResult;
using testing::RunProgram;
using testing::TemporaryFolder;
using testing::TrainCommand;
using testing::TrainRun;

TEST(Eval, MeasuresARunOrACheckpoint) {
  const TemporaryFolder folder;
  TrainRun(folder.path());
  const auto eval = [&](const std::string& model, const std::string& split) {
    const ProgramResult result = RunProgram(
        folder.path(), {"eval", "--model", model, "--data", "data", "--split", split, "--json"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    json report = json::parse(result.out);
    report.erase("images_per_s");
    return report;
  };
  const json best = eval("run", "val");
  EXPECT_EQ(best["images"], 8);
  EXPECT_GE(best["accuracy"], 0.75) << "red and blue are easily told apart";
  EXPECT_EQ(best["classes"], (json::array({"blue", kRed})));
  int64_t right = best["confusion"][0].get<int64_t>() + best["confusion"][3].get<int64_t>();
  EXPECT_EQ(right, std::llround(best["accuracy"].get<double>() * 8));
  const auto record = json::parse(ReadFile(folder.path() / "run/checkpoints/best.json"));
  const std::string step = "run/checkpoints/step-" + std::to_string(record["step"].get<int>());
  EXPECT_EQ(eval(step, "val"), best);
  EXPECT_DOUBLE_EQ(record["value"].get<double>(), best["accuracy"].get<double>());
  EXPECT_EQ(eval(step, "train")["images"], 24);

  const ProgramResult table =
      RunProgram(folder.path(), {"eval", "--model", "run", "--data", "data"});
  EXPECT_TRUE(Holds(table.out, "8 images of val: top-1 ") && Holds(table.out, kRed)) << table.out;
  EXPECT_TRUE(Holds(table.err, step.substr(step.find("step-")))) << "says which: " << table.err;

  EXPECT_EQ(
      RunProgram(folder.path(), {"eval", "--model", "run", "--data", "data", "--split", "test"})
          .status,
      2);
  EXPECT_EQ(RunProgram(folder.path(), {"eval", "--model", "resnet20", "--data", "data"}).status, 2);

  // Classes are matched by name: one that the network has not learnt is an error.
  fs::rename(folder.path() / "data/val/blue", folder.path() / "data/val/azure");
  const ProgramResult unknown =
      RunProgram(folder.path(), {"eval", "--model", "run", "--data", "data"});
  EXPECT_EQ(unknown.status, 1) << unknown.err;
  EXPECT_TRUE(Holds(unknown.err, "azure")) << unknown.err;
}

// Of the run's own folder the images held out are measured, as the run chose them; any other folder
// of class folders is measured whole.
TEST(Eval, NeverMeasuresWhatTheRunLearntFrom) {
  const TemporaryFolder folder;
  MakeData(folder.path() / "data");
  fs::rename(folder.path() / "data/train", folder.path() / "flat");
  const ProgramResult train = RunProgram(
      folder.path(),
      {"train",    "--data",       "flat", "--val-split", "0.25", "--seed",  "3", "--model",
       "resnet20", "--image-size", "16",   "--instances", "1",    "--batch", "8", "--max-steps",
       "2",        "--out",        "run",  "--json"});
  ASSERT_EQ(train.status, 0) << train.err;
  const auto eval = [&](std::vector<std::string> more, const std::string& run = "run") {
    std::vector<std::string> command = {"eval", "--model", run, "--json", "--data"};
    command.insert(command.end(), more.begin(), more.end());
    const ProgramResult result = RunProgram(folder.path(), command);
    EXPECT_EQ(result.status, 0) << result.err;
    return json::parse(result.out);
  };
  const json held_out = eval({"flat"});
  EXPECT_EQ(held_out["images"], 6);
  EXPECT_NEAR(held_out["loss"].get<double>(), json::parse(train.out)["val_loss"].get<double>(),
              1e-5);
  EXPECT_EQ(eval({"flat", "--split", "train"})["images"], 18);
  EXPECT_EQ(eval({"data/val"})["images"], 8);
  const auto refused = [&](const std::string& run, const std::string& data) {
    const ProgramResult result =
        RunProgram(folder.path(), {"eval", "--model", run, "--data", data, "--json"});
    EXPECT_EQ(result.status, 2) << result.out;
    return result.err;
  };

  // A folder that has changed since is no longer known as the run's: what is measured anyhow comes
  // with a line that says what that is worth.
  fs::copy_file(folder.path() / "data/val/blue/12.png", folder.path() / "flat/blue/new.png");
  fs::rename(folder.path() / "flat", folder.path() / "moved");
  const ProgramResult changed =
      RunProgram(folder.path(), {"eval", "--model", "run", "--data", "moved"});
  EXPECT_EQ(changed.status, 0);
  EXPECT_TRUE(
      Holds(changed.err, "72 % of these 25 images are among those that the model has learnt"))
      << changed.err;
  fs::rename(folder.path() / "moved", folder.path() / "flat");
  // The same folder by another path, from elsewhere.
  const ProgramResult elsewhere =
      RunProgram(folder.path() / "data", {"eval", "--model", "../run", "--data", "../flat"});
  EXPECT_TRUE(Holds(elsewhere.err, "measuring what the run held out")) << elsewhere.err;
  // Training images that have become validation images.
  fs::create_directories(folder.path() / "resplit");
  fs::copy(folder.path() / "flat", folder.path() / "resplit/val", fs::copy_options::recursive);
  EXPECT_TRUE(Holds(RunProgram(folder.path(), {"eval", "--model", "run", "--data", "resplit"}).err,
                    "72 % of these 25 images"));
  // So they are to a run that begins with this one's weights.
  const ProgramResult tuned =
      RunProgram(folder.path(), TrainCommand({"--data", "flat", "--val-split", "0.5", "--init-from",
                                              "run", "--max-steps", "1", "--out", "tuned"}));
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_TRUE(Holds(tuned.err, "images are among those that the model has learnt from"))
      << tuned.err;
  // Nothing to measure.
  fs::create_directories(folder.path() / "empty");
  for (const char* nothing : {"empty", "data/val/blue"}) {
    const ProgramResult result =
        RunProgram(folder.path(), {"eval", "--model", "run", "--data", nothing});
    EXPECT_EQ(result.status, 1) << result.err;
    EXPECT_TRUE(Holds(result.err, "holds no class folders with images")) << result.err;
  }
  // Other folders with train/ alone hold nothing that could be told from training images.
  fs::create_directories(folder.path() / "other");
  fs::copy(folder.path() / "flat", folder.path() / "other/train", fs::copy_options::recursive);
  EXPECT_TRUE(Holds(refused("run", "other"), "other holds no validation images; --split train"));
  fs::remove(folder.path() / "flat/blue/new.png");

  // A run that has learnt from everything.
  for (const bool in_train : {false, true}) {
    const std::string data = in_train ? "all" : "flat", out = in_train ? "run-all" : "run-flat";
    if (in_train) {
      fs::create_directories(folder.path() / "all");
      fs::copy(folder.path() / "flat", folder.path() / "all/train", fs::copy_options::recursive);
    }
    ASSERT_EQ(RunProgram(folder.path(), TrainCommand({"--data", data, "--val-split", "0",
                                                      "--max-steps", "1", "--out", out}))
                  .status,
              0);
    EXPECT_TRUE(Holds(refused(out, data), "the run held none out; --split train")) << data;
  }
  // With val/ beside it, which a folder no longer has: then nothing of it is held out either.
  fs::copy(folder.path() / "data/val", folder.path() / "all/val", fs::copy_options::recursive);
  ASSERT_EQ(RunProgram(folder.path(),
                       TrainCommand({"--data", "all", "--max-steps", "1", "--out", "run-val"}))
                .status,
            0);
  EXPECT_EQ(eval({"all"}, "run-val")["images"], 8);
  fs::remove_all(folder.path() / "all/val");
  EXPECT_TRUE(Holds(refused("run-val", "all"), "the run held none out; --split train"));

  // What the checkpoint says of the run counts only when it is as it was saved.
  std::ofstream(folder.path() / "run/checkpoints/step-2/state.json", std::ios::app) << " ";
  const ProgramResult damaged =
      RunProgram(folder.path(), {"eval", "--model", "run", "--data", "data/val"});
  EXPECT_EQ(damaged.status, 0) << damaged.err;
  EXPECT_TRUE(Holds(damaged.err, "state.json is not used") &&
              Holds(damaged.err, "has learnt from is not known"))
      << damaged.err;
}

// The weights measured on test/ are those that eval takes afterwards.
TEST(Train, MeasuresTestWithTheWeightsThatAreUsed) {
  const TemporaryFolder folder;
  MakeData(folder.path() / "data");
  fs::copy(folder.path() / "data/val", folder.path() / "data/test", fs::copy_options::recursive);
  // The rate is so high in the end that the last step is worse than the best one.
  for (const std::string ema : {"0", "0.5"}) {
    const ProgramResult train = RunProgram(
        folder.path(), TrainCommand({"--epochs", "6", "--sched", "constant", "--warmup", "100%",
                                     "--lr", "3", "--ema", ema, "--out", "run" + ema, "--json"}));
    ASSERT_EQ(train.status, 0) << train.err;
    const ProgramResult eval = RunProgram(folder.path(), {"eval", "--model", "run" + ema, "--data",
                                                          "data", "--split", "test", "--json"});
    ASSERT_EQ(eval.status, 0) << eval.err;
    const json summary = json::parse(train.out);
    EXPECT_EQ(summary["test_accuracy"], json::parse(eval.out)["accuracy"]);
    EXPECT_NE(summary["best"]["step"], summary["step"]) << "the test cannot fail";
    const double loss = json::parse(eval.out)["loss"].get<double>();
    EXPECT_NEAR(summary["test_loss"].get<double>(), loss, 1e-6 * loss);
    EXPECT_NE(summary["test_loss"], summary["val_loss"]) << "the test cannot fail";
    EXPECT_TRUE(Holds(ReadFile(folder.path() / ("run" + ema) / "report.html"), "test accuracy"));
  }
}

// Every op of an instance's last steps, in order and without overlap; tracing changes no bit.
TEST(Trace, HoldsWhatInstancesDid) {
  const TemporaryFolder folder;
  MakeData(folder.path() / "data");
  std::string weights;
  for (const bool traced : {false, true}) {
    const std::string out = traced ? "traced" : "plain";
    std::vector<std::string> flags = {"--max-steps", "2", "--tune", "off", "--out", out, "--json"};
    if (traced) flags.insert(flags.end(), {"--trace", "trace.json"});
    const ProgramResult train = RunProgram(folder.path(), TrainCommand(flags));
    ASSERT_EQ(train.status, 0) << train.err;
    const std::string hash = json::parse(train.out)["sha256"];
    EXPECT_TRUE(!traced || hash == weights);
    weights = hash;
  }
  const json trace = json::parse(ReadFile(folder.path() / "trace.json"));
  std::map<int, double> end;
  std::map<std::string, int> times;
  std::set<std::string> kinds;
  std::map<int, std::string> tracks;
  std::map<std::string, int> decoded;  // images, by what they are for
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") {
      tracks[event["tid"]] = event["args"]["name"];
      continue;
    }
    double& before = end[event["tid"]];
    EXPECT_GE(event["ts"].get<double>(), before - 0.01) << event;
    before = event["ts"].get<double>() + event["dur"].get<double>();
    if (event["cat"] == "decode") {
      const std::string name = tracks.at(event["tid"]);
      decoded[name.substr(name.find('('))] += event["args"]["images"].get<int>();
    }
    if (event["cat"] != "op") continue;
    ++times[event["name"]];
    kinds.insert(event["args"]["kind"]);
  }
  EXPECT_GE(times["conv1 backward"], 2);
  EXPECT_EQ(times["linear forward"], times["loss forward"]);
  EXPECT_GE(decoded["(training)"], 16);
  const fs::path val = folder.path() / "data/val";
  const auto images =
      std::count_if(fs::recursive_directory_iterator(val), fs::recursive_directory_iterator(),
                    [](const auto& entry) { return entry.is_regular_file(); });
  EXPECT_EQ(decoded["(evaluation)"], images);
  EXPECT_TRUE(kinds.contains("conv backward weights") && kinds.contains("conv backward data"));
  const ProgramResult refused = RunProgram(
      folder.path(), TrainCommand({"--max-steps", "2", "--out", "no", "--trace", "none/t.json"}));
  EXPECT_NE(refused.status, 0);
  EXPECT_FALSE(fs::exists(folder.path() / "no"));
}

TEST(Profile, TellsOfTrainingEvaluationAndPrediction) {
  const TemporaryFolder folder;
  MakeData(folder.path() / "data");
  const ProgramResult train = RunProgram(
      folder.path(), TrainCommand({"--max-steps", "2", "--out", "run", "--profile", "--json"}));
  ASSERT_EQ(train.status, 0) << train.err;
  const json training = json::parse(train.out)["profile"];
  EXPECT_EQ(training["mode"], "training") << "and not its evaluations";
  EXPECT_EQ(training["images"], 16);
  const ProgramResult eval =
      RunProgram(folder.path(), {"eval", "--model", "run", "--data", "data", "--profile"});
  ASSERT_EQ(eval.status, 0) << eval.err;
  EXPECT_TRUE(Holds(eval.out, "profile of evaluation: ")) << eval.out;
  EXPECT_TRUE(Holds(eval.out, "8 images; times are an instance's")) << eval.out;
  const ProgramResult predict =
      RunProgram(folder.path(), {"predict", "--model", "run", "data/val", "--profile"});
  ASSERT_EQ(predict.status, 0) << predict.err;
  EXPECT_TRUE(Holds(predict.err, "conv forward")) << predict.err;
  EXPECT_FALSE(Holds(predict.out, "profile")) << "the table must stay out of the CSV";
}

// Names come from whoever packed the data: a terminal must not obey them.
TEST(Eval, ShowsNamesThatATerminalWouldObey) {
  const TemporaryFolder folder;
  MakeData(folder.path() / "data");
  const std::string name = "a\n\x1B[2Jz", shown = "a\\n\\x1b[2Jz";
  for (const char* part : {"train", "val"}) {
    fs::rename(folder.path() / "data" / part / "blue", folder.path() / "data" / part / name);
  }
  const ProgramResult train =
      RunProgram(folder.path(), TrainCommand({"--max-steps", "1", "--out", name}));
  ASSERT_EQ(train.status, 0) << train.err;
  const ProgramResult eval = RunProgram(folder.path(), {"eval", "--model", name, "--data", "data"});
  ASSERT_EQ(eval.status, 0) << eval.err;
  for (const std::string& text : {train.err, train.out, eval.err, eval.out}) {
    EXPECT_TRUE(Holds(text, shown)) << text;
    EXPECT_FALSE(Holds(text, "\x1B")) << text;
  }
}

TEST(Config, NamesFileAndKeyOfAWrongValue) {
  ModelConfig config;
  config.model.name = "resnet20";
  config.classes = {"a", "b"};
  const std::string good = ToJson(config);
  EXPECT_EQ(ParseModelConfig(good, "c.json").resize, 256);
  for (const auto& [key, value] : {std::pair<const char*, json>{"resize", 100},
                                   {"image_size", 0},
                                   {"interpolation", "nearest"},
                                   {"std", {0.1, 0, 0.1}},
                                   {"mean", {0.1, 1e300, 0.1}},
                                   {"classes", json::array()},
                                   {"channels", 1},
                                   {"format", 2}}) {
    json wrong = json::parse(good);
    wrong[key] = value;
    const std::string message = testing::ErrorOf([&] { ParseModelConfig(wrong.dump(), "c.json"); });
    EXPECT_TRUE(message.starts_with("c.json: ") && Holds(message, key)) << message;
  }
}

// No probability is told that is none.
TEST(Weights, ThatGiveNoNumbersAreAnError) {
  const TemporaryFolder folder;
  MakeData(folder.path() / "data");
  ASSERT_EQ(RunProgram(folder.path(), TrainCommand({"--max-steps", "1", "--out", "run"})).status,
            0);
  CheckpointContent content =
      LoadCheckpoint(folder.path() / "run/checkpoints/step-1", CheckpointUse::kResume);
  for (float& weight : content.model.at("linear.weight").values) weight = 3e38f;
  SaveCheckpoint(folder.path() / "huge/checkpoints", 1, content);
  WriteNpy(folder.path() / "batch.npy", {1, 3, 16, 16}, std::vector<float>(768));
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"predict", "data/val/blue/12.png"},
        {"predict", "--json", "data/val"},
        {"predict", "batch.npy", "--out", "logits.npy"},
        {"eval", "--data", "data"}}) {
    std::vector<std::string> command = words;
    command.insert(command.end(), {"--model", "huge"});
    const ProgramResult result = RunProgram(folder.path(), command);
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(Holds(result.err, "not finite")) << result.err;
  }
  EXPECT_FALSE(fs::exists(folder.path() / "logits.npy"));
}

}  // namespace
}  // namespace parax
