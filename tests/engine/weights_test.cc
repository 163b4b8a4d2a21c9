#include "parax/engine/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/test_files.h"

namespace parax {
namespace {

using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::Not;

Graph Small(int64_t classes = 10) {
  Graph graph;
  int value = graph.Input(8, 8, 8);
  value = graph.Add("conv1",
                    Conv({.in_channels = 8, .out_channels = 64, .kernel = 3, .padding = 1}), value);
  value = graph.Add("bn1", BatchNorm({.channels = 64}), value);
  value = graph.Add(
      "conv2",
      Conv({.in_channels = 64, .out_channels = 128, .kernel = 3, .padding = 1, .groups = 4}),
      value);
  value = graph.Add("", GlobalAvgPool(), value);
  graph.Add("fc", Linear(128, classes), value);
  return graph;
}

double Deviation(const NamedTensor& tensor) {
  double sum = 0, squares = 0;
  for (const double v : tensor.values) sum += v, squares += v * v;
  const auto n = static_cast<double>(tensor.values.size());
  EXPECT_LT(std::abs(sum / n), 4 * std::sqrt(squares / n / n));  // mean 0 within 4 sigma
  return std::sqrt(squares / n);
}

TEST(Weights, CountsParameters) {
  EXPECT_EQ(ParameterCount(Small()), 64 * 8 * 9 + 64 * 2 + 128 * 16 * 9 + 128 * 10 + 10);
}

TEST(Weights, InitFollowsPyTorchFormulas) {
  const TensorMap tensors = InitTensors(Small(), 1);
  ASSERT_EQ(tensors.size(), 8u);
  // fan_out = outputs x kernel area, whatever the groups.
  EXPECT_NEAR(Deviation(tensors.at("conv1.weight")), std::sqrt(2.0 / (64 * 9)), 0.002);
  EXPECT_NEAR(Deviation(tensors.at("conv2.weight")), std::sqrt(2.0 / (128 * 9)), 0.002);
  EXPECT_EQ(tensors.at("bn1.weight").values, std::vector<float>(64, 1.0f));
  EXPECT_EQ(tensors.at("bn1.bias").values, std::vector<float>(64, 0.0f));
  EXPECT_EQ(tensors.at("bn1.running_mean").values, std::vector<float>(64, 0.0f));
  EXPECT_EQ(tensors.at("bn1.running_var").values, std::vector<float>(64, 1.0f));
  const double bound = 1 / std::sqrt(128.0);
  EXPECT_NEAR(Deviation(tensors.at("fc.weight")), bound / std::sqrt(3.0), 0.005);
  for (const char* name : {"fc.weight", "fc.bias"}) {
    float largest = 0;
    for (const float v : tensors.at(name).values) largest = std::max(largest, std::abs(v));
    EXPECT_LE(largest, bound) << name;
    EXPECT_GT(largest, bound / 2) << name;
  }
}

TEST(Weights, InitDependsOnSeedAndIndexOnly) {
  const TensorMap a = InitTensors(Small(10), 1);
  const TensorMap other_head = InitTensors(Small(3), 1);
  const TensorMap other_seed = InitTensors(Small(10), 2);
  EXPECT_EQ(a.at("conv2.weight").values, other_head.at("conv2.weight").values);
  EXPECT_NE(a.at("conv2.weight").values, other_seed.at("conv2.weight").values);
  EXPECT_NE(a.at("conv1.weight").values[0] * std::sqrt(64.0f),
            a.at("conv2.weight").values[0] * std::sqrt(128.0f))
      << "parameters do not share numbers";
}

TEST(Weights, StrictLoadTakesExactlyTheGraphsTensors) {
  const Graph graph = Small();
  TensorMap file = InitTensors(graph, 1);
  file["bn1.num_batches_tracked"] = {{}, {5}};
  const TensorMap loaded = StrictLoad(graph, file, "w.safetensors");
  EXPECT_EQ(loaded.size(), 8u);
  EXPECT_EQ(loaded.at("fc.bias").values, file.at("fc.bias").values);
}

TEST(Weights, WhatIsNoNumberOrNoVarianceIsRefused) {
  for (const auto& [name, value] : {std::pair{"conv1.weight", NAN},
                                    {"bn1.running_mean", INFINITY},
                                    {"bn1.running_var", -1.0f}}) {
    TensorMap file = InitTensors(Small(), 1);
    file.at(name).values[3] = value;
    EXPECT_THAT(ErrorOf([&] { StrictLoad(Small(), file, "w.safetensors"); }),
                HasSubstr(std::string("w.safetensors: ") + name + " holds "));
  }
}

// Case N.
TEST(Weights, OneErrorNamesAllDifferences) {
  const Graph graph = Small();
  TensorMap file = InitTensors(graph, 1);
  file.erase("conv1.weight");
  file.erase("bn1.running_var");
  file["conv1.bias"] = {{3}, {1, 2, 3}};
  file["fc.weight"] = {{128, 10}, std::vector<float>(1280)};
  const std::string error = ErrorOf([&] { StrictLoad(graph, file, "w.safetensors"); });
  EXPECT_EQ(error,
            "w.safetensors does not fit the model: missing bn1.running_var [64], conv1.weight "
            "[64, 8, 3, 3]; extra conv1.bias [3]; wrong shape fc.weight (expected [10, 128], found "
            "[128, 10])");
}

TEST(Weights, InitFromDropsOnlyAForeignHead) {
  const Graph graph = Small(5);
  const TensorMap file = InitTensors(Small(10), 1);
  const InitFromResult result = InitFrom(graph, file, "w.safetensors", 3);
  EXPECT_EQ(result.tensors.at("conv2.weight").values, file.at("conv2.weight").values);
  EXPECT_EQ(result.tensors.at("fc.weight").values, InitTensors(graph, 3).at("fc.weight").values);
  EXPECT_EQ(result.tensors.at("fc.bias").values, InitTensors(graph, 3).at("fc.bias").values);
  EXPECT_THAT(result.line, HasSubstr("without its head fc of 10 classes; the new one has 5"));
}

TEST(Weights, InitFromKeepsAHeadThatFits) {
  const TensorMap file = InitTensors(Small(), 1);
  const InitFromResult result = InitFrom(Small(), file, "w.safetensors", 3);
  EXPECT_EQ(result.tensors.at("fc.weight").values, file.at("fc.weight").values);
  EXPECT_THAT(result.line, HasSubstr("its head fc (10 classes) included"));
}

TEST(Weights, InitFromIsStrictOtherwise) {
  TensorMap file = InitTensors(Small(10), 1);
  file.erase("conv2.weight");
  const std::string missing = ErrorOf([&] { InitFrom(Small(5), file, "w.safetensors", 3); });
  EXPECT_THAT(missing, HasSubstr("missing conv2.weight"));
  EXPECT_THAT(missing, Not(HasSubstr("fc.")));
  TensorMap other = InitTensors(Small(10), 1);
  other["fc.weight"] = {{10, 64}, std::vector<float>(640)};
  EXPECT_THAT(ErrorOf([&] { InitFrom(Small(5), other, "w.safetensors", 3); }),
              HasSubstr("fc.weight (expected [5, 128], found [10, 64])"));
}

}  // namespace
}  // namespace parax
