#include "parax/engine/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/test_files.h"

namespace parax {
namespace {

using testing::ErrorOf;
using ::testing::HasSubstr;

LayerPtr Conv3x3(int64_t in, int64_t out) {
  return Conv({.in_channels = in, .out_channels = out, .kernel = 3, .padding = 1});
}

Graph Small() {
  Graph graph;
  int value = graph.Input(3, 8, 8);
  value = graph.Add("stem.conv", Conv3x3(3, 4), value);
  value = graph.Add("stem.bn", BatchNorm({.channels = 4}), value);
  value = graph.Add("body.conv", Conv3x3(4, 4), value);
  value = graph.Add("", GlobalAvgPool(), value);
  graph.Add("fc", Linear(4, 2), value);
  return graph;
}

std::vector<std::string> Frozen(const Graph& graph) {
  std::vector<std::string> names;
  for (const Graph::Node& node : graph.nodes()) {
    if (node.frozen) names.push_back(node.name);
  }
  return names;
}

TEST(Graph, ValuesDimsAndLogits) {
  Graph graph = Small();
  EXPECT_EQ(graph.values(), 6);
  EXPECT_EQ(graph.dims(0), (Dims{1, 3, 8, 8}));
  EXPECT_EQ(graph.dims(3), (Dims{1, 4, 8, 8}));
  EXPECT_EQ(graph.dims(graph.logits()), (Dims{1, 2}));
  EXPECT_EQ(graph.nodes()[2].inputs, (std::vector<int>{2}));
  EXPECT_EQ(graph.nodes()[2].output, 3);
  graph.SetLogits(4);
  EXPECT_EQ(graph.logits(), 4);
}

TEST(Graph, RefusesWhatDoesNotFitAndNamesTheNode) {
  Graph graph = Small();
  EXPECT_THAT(ErrorOf([&] { graph.Add("fc", Linear(4, 2), 4); }), HasSubstr("fc"));
  EXPECT_THAT(ErrorOf([&] { graph.Add("next", Conv3x3(5, 4), 3); }), HasSubstr("next"));
  EXPECT_THAT(ErrorOf([&] { graph.Add("next", Relu(), 6); }), HasSubstr("next"));
  EXPECT_THAT(ErrorOf([&] { graph.Add("next", Relu(), -1); }), HasSubstr("next"));
  EXPECT_THAT(ErrorOf([&] { graph.Add("", Linear(4, 2), 4); }), HasSubstr("name"));
  EXPECT_NE(ErrorOf([&] { graph.Input(3, 8, 8); }), "");
  EXPECT_NE(ErrorOf([&] { Graph().Input(3, 0, 8); }), "");
  EXPECT_EQ(graph.values(), 6) << "a refused node leaves nothing behind";
  EXPECT_EQ(graph.nodes().size(), 5u);
}

TEST(Graph, FreezesByPrefix) {
  Graph graph = Small();
  graph.Freeze({"stem", "fc"});
  EXPECT_THAT(Frozen(graph), ::testing::ElementsAre("stem.conv", "stem.bn", "fc"));
}

TEST(Graph, UnknownPrefixNamesTheNearest) {
  Graph graph = Small();
  EXPECT_THROW(graph.Freeze({"stme"}), UsageError);
  EXPECT_THAT(ErrorOf([&] { graph.Freeze({"bdy.conv"}); }), HasSubstr("did you mean 'body.conv'?"));
  EXPECT_THAT(ErrorOf([&] { graph.Freeze({"stm"}); }), HasSubstr("did you mean 'stem'?"));
  EXPECT_THROW(graph.Freeze({""}), UsageError);
}

}  // namespace
}  // namespace parax
