// predict, plan, topo and --help, as their users meet them.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "parax/base/file.h"
#include "parax/cli/npy.h"
#include "tests/cli/program.h"
#include "tests/data/image_writer.h"

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

TEST(Predict, WorksFromTheRunFolderAlone) {
  const TemporaryFolder folder;
  TrainRun(folder.path());
  const fs::path moved = folder.path() / "far/away";
  fs::create_directories(moved);
  fs::rename(folder.path() / "run", moved / "run");
  fs::rename(folder.path() / "data/val", folder.path() / "pictures");
  fs::remove_all(folder.path() / "data");
  const std::string red = std::string("pictures/") + kRed + "/13.jpg",
                    blue = "pictures/blue/12.png";
  fs::create_directories(folder.path() / "pictures/.thumbnails");
  fs::copy(folder.path() / blue, folder.path() / "pictures/.thumbnails/12.png");
  const auto predict = [&](std::vector<std::string> words, const std::string& input = "") {
    std::vector<std::string> command = {"predict", "--model", "far/away/run"};
    command.insert(command.end(), words.begin(), words.end());
    return RunProgram(folder.path(), command, input);
  };

  const ProgramResult csv = predict({red, "--top", "1"});
  ASSERT_EQ(csv.status, 0) << csv.err;
  const std::string quoted = std::string("\n\"") + red + "\",\"" + kRed + "\",";
  EXPECT_TRUE(csv.out.starts_with("file,class1,probability1\n")) << csv.out;
  EXPECT_TRUE(Holds(csv.out, quoted)) << csv.out;

  const ProgramResult all = predict({"pictures", "--json"});
  ASSERT_EQ(all.status, 0) << all.err;
  const json rows = json::parse(all.out);
  ASSERT_EQ(rows.size(), 8u) << "hidden folders are left out";
  EXPECT_EQ(all.err, "");
  EXPECT_EQ(rows[0]["file"], blue);
  EXPECT_EQ(rows[0]["predictions"].size(), 2u);
  EXPECT_EQ(rows[0]["predictions"][0]["class"], "blue");

  const ProgramResult listed = predict({"-", "--format", "json"}, red + "\n\n" + blue + "\n");
  ASSERT_EQ(listed.status, 0) << listed.err;
  const json two = json::parse(listed.out);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0]["predictions"][0]["class"], kRed);
  EXPECT_EQ(two[1], rows[0]) << "the same whatever stands beside it";
  using namespace std::string_literals;
  EXPECT_EQ(predict({"-", "--format", "json"}, red + "\0"s + blue + "\0"s).out, listed.out);

  // What can't be read is named; the others are still predicted.
  std::ofstream(folder.path() / "broken.jpg") << "no image";
  const ProgramResult some = predict({"broken.jpg", blue, "missing.png", "--out", "some.csv"});
  EXPECT_EQ(some.status, 1);
  EXPECT_TRUE(Holds(some.err, "broken.jpg") && Holds(some.err, "missing.png") &&
              Holds(some.err, "2 of 3 files"))
      << some.err;
  for (const char* name : {"broken.jpg", "missing.png"}) {
    EXPECT_EQ(some.err.find(name), some.err.rfind(name)) << "named once: " << some.err;
  }
  EXPECT_TRUE(Holds(ReadFile(folder.path() / "some.csv"), blue + ",blue,"));
  // As many as there are, for all are left out.
  std::string many;
  for (int i = 0; i < 9; ++i) many += "missing" + std::to_string(i) + ".jpg\n";
  const ProgramResult none = predict({"-"}, many);
  for (int i = 0; i < 9; ++i) {
    EXPECT_TRUE(Holds(none.err, "missing" + std::to_string(i) + ".jpg")) << none.err;
  }
  EXPECT_EQ(some.out, "");
  EXPECT_EQ(predict({}).status, 2);
  // Results never take the place of a picture, however it is called.
  const std::string picture = ReadFile(folder.path() / blue);
  fs::create_symlink(blue, folder.path() / "link.png");
  for (const auto& [out, input] : {std::pair(blue, blue),
                                   {blue, std::string("pictures")},
                                   {std::string("link.png"), blue},
                                   {blue, std::string("-")}}) {
    const ProgramResult over = predict({input, "--out", out}, blue + "\n");
    EXPECT_EQ(over.status, 2) << over.err;
    EXPECT_TRUE(Holds(over.err, "--out " + out + " is one of the files to predict")) << over.err;
  }
  EXPECT_EQ(ReadFile(folder.path() / blue), picture);
  const auto best = json::parse(ReadFile(moved / "run/checkpoints/best.json"));
  const fs::path weights = moved / "run/checkpoints" /
                           ("step-" + std::to_string(best["step"].get<int>())) /
                           "model.safetensors";
  EXPECT_TRUE(Holds(predict({blue, "--out", weights}).err, "one of a checkpoint's files"));
  EXPECT_EQ(predict({blue, "--out", "broken.jpg/x.csv"}).status, 1);
  EXPECT_EQ(predict({"far"}).status, 1) << "a folder without images";
}

// An image that needs no resizing, given as a file and as the array that it becomes.
TEST(Predict, TakesArrays) {
  const TemporaryFolder folder;
  TrainRun(folder.path());
  const json config = json::parse(ReadFile(folder.path() / "run/checkpoints/step-48/config.json"));
  constexpr int64_t kSize = 16, kPixels = kSize * kSize, kImages = 3;
  std::vector<float> values;
  std::vector<std::string> command = {"predict", "--model", "run", "--json"};
  for (int64_t i = 0; i < kImages; ++i) {
    Image image = MakePicture(kSize, kSize);
    for (uint8_t& p : image.pixels) p = static_cast<uint8_t>(p + 40 * i);
    const std::string name = "image" + std::to_string(i) + ".png";
    std::ofstream(folder.path() / name, std::ios::binary) << WritePng(image);
    command.push_back(name);
    for (size_t c = 0; c < 3; ++c) {
      const float mean = config["mean"][c], std = config["std"][c];
      for (int64_t p = 0; p < kPixels; ++p) {
        values.push_back(
            (image.row(static_cast<int>(p / kSize))[3 * (p % kSize) + c] / 255.0f - mean) / std);
      }
    }
  }
  WriteNpy(folder.path() / "batch.npy", {kImages, 3, kSize, kSize}, values);
  const ProgramResult arrays =
      RunProgram(folder.path(), {"predict", "--model", "run", "batch.npy", "--out", "logits.npy"});
  ASSERT_EQ(arrays.status, 0) << arrays.err;
  const ProgramResult images = RunProgram(folder.path(), command);
  ASSERT_EQ(images.status, 0) << images.err;
  const json rows = json::parse(images.out);
  const std::string file = ReadFile(folder.path() / "logits.npy");
  const NpyArray logits = ParseNpy(std::as_bytes(std::span(file)), "logits.npy");
  ASSERT_EQ(logits.shape, (std::vector<int64_t>{kImages, 2}));
  for (size_t i = 0; i < kImages; ++i) {
    const double blue = 1 / (1 + std::exp(logits.values[2 * i + 1] - logits.values[2 * i]));
    const json& top = rows[i]["predictions"][0];
    const double expected = top["class"] == "blue" ? blue : 1 - blue;
    EXPECT_NEAR(top["probability"].get<double>(), expected, 1e-4) << i;
  }

  EXPECT_EQ(RunProgram(folder.path(), {"predict", "--model", "run", "batch.npy"}).status, 2);
  WriteNpy(folder.path() / "small.npy", {1, 3, 8, 8}, std::vector<float>(192));
  const ProgramResult wrong =
      RunProgram(folder.path(), {"predict", "--model", "run", "small.npy", "--out", "logits.npy"});
  EXPECT_EQ(wrong.status, 1);
  EXPECT_TRUE(Holds(wrong.err, "(N, 3, 16, 16)")) << wrong.err;
}

TEST(Program, TellsWithoutRunning) {
  const TemporaryFolder folder;
  const ProgramResult plan =
      RunProgram(folder.path(), {"plan", "--model", "resnet20", "--micro-batch", "4", "--layout",
                                 "nhwc", "--instances", "1", "--json"});
  ASSERT_EQ(plan.status, 0) << plan.err;
  const json report = json::parse(plan.out);
  EXPECT_EQ(report["micro_batch"], 4);
  // Forward 41 million multiply-adds an image (He et al. 2016), backward twice that, less the first
  // layer's input gradient.
  EXPECT_NEAR(report["flops"].get<double>(), 4 * 3 * 2 * 40.8e6, 4 * 4e6);
  EXPECT_GT(report["ops"].size(), 60u);
  for (const json& op : report["ops"]) EXPECT_GE(op["bytes"], op["least_bytes"]) << op;
  // Images, weights and outputs once; batch norm must read its input twice.
  const double outputs = 4 * 4 * 32 * 32 * 16, images = 4 * 4 * 32 * 32 * 3, weights = 4 * 27 * 16;
  const json &conv = report["ops"][0], &norm = report["ops"][1];
  ASSERT_EQ(norm["name"], "bn1 forward");
  EXPECT_NEAR(conv["least_bytes"].get<double>(), outputs + images + weights, 0.02 * outputs);
  EXPECT_NEAR(norm["least_bytes"].get<double>(), 2 * outputs, 0.02 * outputs);
  EXPECT_NEAR(norm["bytes"].get<double>(), 3 * outputs, 0.02 * outputs);
  size_t together = 0;
  for (const auto& [kind, bytes] : report["memory"].items()) {
    if (kind != "total" && kind != "limit") together += bytes.get<size_t>();
  }
  EXPECT_EQ(report["memory"]["total"], together);
  const ProgramResult text = RunProgram(
      folder.path(), {"plan", "--model", "resnet20", "--layout", "nhwc", "--instances", "1"});
  EXPECT_TRUE(Holds(text.out, "memory of a training run with 1 instance\n")) << text.out;
  EXPECT_EQ(RunProgram(folder.path(), {"plan", "--model", "resnet20", "--micro-batch", "0"}).status,
            2);

  const ProgramResult topo = RunProgram(folder.path(), {"topo", "--json"});
  ASSERT_EQ(topo.status, 0) << topo.err;
  EXPECT_FALSE(json::parse(topo.out).empty());
  EXPECT_EQ(RunProgram(folder.path(), {"topo", "--advice"}).status, 0);
  EXPECT_FALSE(fs::exists(folder.path() / "runs")) << "neither writes anything";
}

// OpenMP binds the program to one core before it begins, which is not what it may use.
TEST(Program, SeesTheWholeMachineUnderOpenmpBinding) {
  const TemporaryFolder folder;
  const auto cores = [&] {
    return json::parse(RunProgram(folder.path(), {"topo", "--json"}).out).at("seats");
  };
  const json free = cores();
  setenv("OMP_PROC_BIND", "true", 1);
  const json bound = cores();
  unsetenv("OMP_PROC_BIND");
  EXPECT_EQ(bound, free);
}

// A path that leads nowhere, as a folder that may not be searched: in one line of ours.
TEST(Program, NamesThePathThatCannotBeUsed) {
  const TemporaryFolder folder;
  MakeData(folder.path() / "data");
  fs::create_symlink("loop", folder.path() / "loop");
  for (const std::vector<std::string>& command : {TrainCommand({"--out", "loop/run"}),
                                                  TrainCommand({"--data", "loop/data"}),
                                                  {"train", "--resume", "loop/run"},
                                                  {"eval", "--data", "data", "--model", "loop/run"},
                                                  {"predict", "--model", "loop/run", "a.jpg"}}) {
    const ProgramResult result = RunProgram(folder.path(), command);
    EXPECT_EQ(result.status, 1);
    EXPECT_TRUE(result.err.starts_with("error: ") && Holds(result.err, "loop/") &&
                result.err.ends_with(": Too many levels of symbolic links\n"))
        << result.err;
  }
}

TEST(Program, HelpsAndSaysItsVersion) {
  const TemporaryFolder folder;
  for (const char* command : {"train", "eval", "predict", "plan", "tune", "bench", "topo"}) {
    const ProgramResult help = RunProgram(folder.path(), {command, "--help"});
    EXPECT_EQ(help.status, 0);
    EXPECT_TRUE(Holds(help.out, "--json") && Holds(help.out, "Examples:")) << command;
    EXPECT_TRUE(Holds(RunProgram(folder.path(), {"--help"}).out, command));
  }
  const ProgramResult version = RunProgram(folder.path(), {"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_TRUE(version.out.starts_with("parax ") && Holds(version.out, ".")) << version.out;
  EXPECT_EQ(RunProgram(folder.path(), {"fly"}).status, 2);
}

}  // namespace
}  // namespace parax
