#include "parax/models/resnet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parax/engine/safetensors.h"
#include "parax/engine/weights.h"
#include "tests/engine/test_files.h"

namespace parax {
namespace {

using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;

int64_t Parameters(const std::string& name, int64_t image_size = 0) {
  return ParameterCount(BuildModel({.name = name, .image_size = image_size}));
}

// Counts published with torchvision's weights; CIFAR: README of pytorch_resnet_cifar10 (0.27M,
// 0.46M, 0.66M, 0.85M, 1.7M), exact ones counted by hand: 9 x (3x16 + 6n x 16^2 + 16x32 +
// (2n-1) x 32^2 + 32x64 + (2n-1) x 64^2) + norms 2 x (16 + 2n x 112) + 650.
TEST(ResNet, ParameterCounts) {
  EXPECT_EQ(Parameters("resnet18"), 11'689'512);
  EXPECT_EQ(Parameters("resnet34"), 21'797'672);
  EXPECT_EQ(Parameters("resnet50"), 25'557'032);
  EXPECT_EQ(Parameters("resnet101"), 44'549'160);
  EXPECT_EQ(Parameters("resnet152"), 60'192'808);
  EXPECT_EQ(Parameters("wide_resnet50_2"), 68'883'240);
  EXPECT_EQ(Parameters("wide_resnet101_2"), 126'886'696);
  EXPECT_EQ(Parameters("resnext50_32x4d"), 25'028'904);
  EXPECT_EQ(Parameters("resnext101_32x8d"), 88'791'336);
  EXPECT_EQ(Parameters("resnext101_64x4d"), 83'455'272);
  for (const auto& [name, n] : {std::pair{"resnet20", 3},
                                {"resnet32", 5},
                                {"resnet44", 7},
                                {"resnet56", 9},
                                {"resnet110", 18}}) {
    const int64_t weights = 9 * (3 * 16 + 2 * n * 16 * 16 + 16 * 32 + (2 * n - 1) * 32 * 32 +
                                 32 * 64 + (2 * n - 1) * 64 * 64);
    EXPECT_EQ(Parameters(name), weights + 2 * (16 + 2 * n * 112) + 650) << name;
  }
  EXPECT_EQ(Parameters("resnet20"), 269'722);
}

TEST(ResNet, EveryNameBuildsWithItsOwnSizes) {
  for (const std::string& name : ModelNames()) {
    const ModelSpec spec = Resolved({.name = name});
    const Graph graph = BuildModel({.name = name});
    EXPECT_EQ(graph.dims(0), (Dims{1, 3, spec.image_size, spec.image_size})) << name;
    EXPECT_EQ(graph.dims(graph.logits()), (Dims{1, spec.classes})) << name;
  }
}

TEST(ResNet, StagesHaveTheRightSizes) {
  const Graph graph = BuildModel({.name = "resnet50"});
  for (const Graph::Node& node : graph.nodes()) {
    if (node.name == "layer2.0.conv1") {  // the stride is in conv2
      EXPECT_EQ(graph.dims(node.output), (Dims{1, 128, 56, 56}));
    }
    if (node.name == "layer2.0.conv2") {
      EXPECT_EQ(graph.dims(node.output), (Dims{1, 128, 28, 28}));
    }
    if (node.name == "layer4.2.conv3") {
      EXPECT_EQ(graph.dims(node.output), (Dims{1, 2048, 7, 7}));
    }
  }
}

TEST(ResNet, OptionsReachTheGraph) {
  const Graph graph = BuildModel(
      {.name = "resnet18", .classes = 5, .image_size = 64, .channels = 1, .dropout = 0.2});
  EXPECT_EQ(graph.dims(0), (Dims{1, 1, 64, 64}));
  EXPECT_EQ(graph.dims(graph.logits()), (Dims{1, 5}));
  const auto& nodes = graph.nodes();
  EXPECT_EQ(nodes[nodes.size() - 2].layer->kind(), "dropout");
  EXPECT_EQ(Parameters("resnet18", 32), 11'689'512) << "small images build too";
  const auto zeros = [](bool zero_init) {
    const TensorMap t = InitTensors(
        BuildModel({.name = "resnet18", .image_size = 32, .zero_init_residual = zero_init}), 0);
    return std::pair(t.at("layer1.0.bn1.weight").values[0], t.at("layer1.0.bn2.weight").values[0]);
  };
  EXPECT_EQ(zeros(false), std::pair(1.0f, 1.0f));
  EXPECT_EQ(zeros(true), std::pair(1.0f, 0.0f));
}

TEST(ResNet, DescriptionBuildsTheNamedModels) {
  EXPECT_EQ(Parameters("resnet:basic:2,2,2,2"), Parameters("resnet18"));
  EXPECT_EQ(Parameters("resnet:bottleneck:3,4,6,3"), Parameters("resnet50"));
  EXPECT_EQ(Parameters("resnet:bottleneck:3,4,6,3:128"), Parameters("wide_resnet50_2"));
  EXPECT_EQ(Parameters("resnet:bottleneck:3,4,6,3:4:32"), Parameters("resnext50_32x4d"));
  for (const char* name :
       {"resnet:", "resnet:basic", "resnet:odd:1,1,1,1", "resnet:basic:1,1,1",
        "resnet:basic:1,1,1,0", "resnet:basic:1,1,1,x", "resnet:basic:1,1,1,1:16",
        "resnet:bottleneck:1,1,1,1:64:1:1", "resnet:bottleneck:1,1,1,"}) {
    EXPECT_THROW(BuildModel({.name = name}), UsageError) << name;
  }
}

TEST(ResNet, UnknownNameNamesTheNearest) {
  EXPECT_THAT(ErrorOf([] { BuildModel({.name = "resnet5"}); }), HasSubstr("did you mean 'resnet"));
  EXPECT_THAT(ErrorOf([] { BuildModel({.name = "resnext50"}); }), HasSubstr("did you mean"));
  EXPECT_THROW(BuildModel({.name = "completely different"}), UsageError);
  EXPECT_THROW(BuildModel({.name = "resnet18", .classes = -1}), UsageError);
}

TEST(ResNet, Preprocessing) {
  const Preprocessing imagenet = DefaultPreprocessing({.name = "resnet50"});
  EXPECT_EQ(imagenet.resize, 256);
  EXPECT_EQ(imagenet.crop, 224);
  EXPECT_THAT(imagenet.mean, ElementsAre(0.485f, 0.456f, 0.406f));
  EXPECT_THAT(imagenet.stddev, ElementsAre(0.229f, 0.224f, 0.225f));
  EXPECT_EQ(DefaultPreprocessing({.name = "resnet50", .image_size = 112}).resize, 128);
  const Preprocessing cifar = DefaultPreprocessing({.name = "resnet20"});
  EXPECT_EQ(cifar.resize, 32);
  EXPECT_EQ(cifar.crop, 32);
  EXPECT_THAT(cifar.mean, ElementsAre(0.4914f, 0.4822f, 0.4465f));
  EXPECT_EQ(DefaultPreprocessing({.name = "resnet50", .channels = 1}).mean.size(), 1u);
}

// Names and shapes are exactly those of files that PyTorch wrote.
void ExpectFits(const ModelSpec& spec, const std::string& name) {
  const auto path = testing::SharedFile(name);
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  EXPECT_EQ(ErrorOf([&] { StrictLoad(BuildModel(spec), ReadSafetensors(path).tensors, name); }),
            "");
}
TEST(ResNetGolden, CifarNamesAndShapes) {
  ExpectFits({.name = "resnet20"}, "cifar10-resnet20/resnet20.safetensors");
}
TEST(ResNetGolden, BottleneckNamesAndShapes) {
  ExpectFits({.name = "resnet:bottleneck:1,2,1,1:16", .classes = 10, .image_size = 64},
             "pytorch-golden/resnet_bottleneck.safetensors");
}

}  // namespace
}  // namespace parax
