#include "parax/engine/layout_search.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace parax {
namespace {

constexpr int kLayouts = 3;

// A random network with random costs: nodes read any earlier values, and what a way wants and makes
// depends on how its inputs were made.
struct RandomProblem {
  explicit RandomProblem(uint32_t seed) : random(seed) {
    const int nodes = 2 + Below(5);
    for (int n = 0; n < nodes; ++n) {
      LayoutProblem::Node node{{n - Below(std::min(n, 2) + 1)}, n + 1};
      if (Below(2) == 0) node.inputs.push_back(Below(n + 1));
      problem.nodes.push_back(node);
    }
    problem.input_layout = Below(kLayouts);
    problem.ways = [this](int node, std::span<const int> made) {
      const std::vector<int> key(made.begin(), made.end());
      std::vector<LayoutWay>& ways = known[{node, key}];
      const size_t count = ways.empty() ? static_cast<size_t>(1 + Below(3)) : 0;
      for (size_t w = 0; w < count; ++w) {
        LayoutWay way{{}, Below(kLayouts), Cost()};
        for (size_t i = 0; i < key.size(); ++i) way.inputs.push_back(Below(kLayouts));
        ways.push_back(way);
      }
      return ways;
    };
    problem.reorder = [this](int value, int from, int to) {
      const auto [it, is_new] = reorders.try_emplace({value, from, to}, 0);
      if (is_new) it->second = Cost();
      return it->second;
    };
  }
  int Below(int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); }
  double Cost() { return Below(1000) / 64.0; }  // sums are exact

  std::mt19937 random;
  LayoutProblem problem;
  std::map<std::pair<int, std::vector<int>>, std::vector<LayoutWay>> known;
  std::map<std::tuple<int, int, int>, double> reorders;
};

// Cost of given ways, or with `ways` shorter than the network the least over all that begin so.
double Least(const LayoutProblem& problem, std::vector<int> ways) {
  std::map<int, int> made = {{0, problem.input_layout}};
  std::set<std::pair<int, int>> copies;
  double cost = 0;
  for (size_t n = 0; n < problem.nodes.size(); ++n) {
    const auto& node = problem.nodes[n];
    std::vector<int> inputs;
    for (const int value : node.inputs) inputs.push_back(made.at(value));
    const auto all = problem.ways(static_cast<int>(n), inputs);
    if (n == ways.size()) {
      double least = INFINITY;
      for (size_t w = 0; w < all.size(); ++w) {
        ways.push_back(static_cast<int>(w));
        least = std::min(least, Least(problem, ways));
        ways.pop_back();
      }
      return least;
    }
    const LayoutWay& way = all.at(static_cast<size_t>(ways[n]));
    cost += way.cost;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const int value = node.inputs[i];
      if (made.at(value) == way.inputs[i] || !copies.insert({value, way.inputs[i]}).second)
        continue;
      cost += problem.reorder(value, made.at(value), way.inputs[i]);
    }
    made[node.output] = way.output;
  }
  return cost;
}

TEST(LayoutSearch, FindsWhatTryingEverythingFinds) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    RandomProblem random(seed);
    const LayoutAnswer answer = SearchLayouts(random.problem);
    ASSERT_EQ(answer.ways.size(), random.problem.nodes.size());
    EXPECT_EQ(answer.cost, Least(random.problem, {})) << "seed " << seed;
    EXPECT_EQ(answer.cost, Least(random.problem, answer.ways)) << "seed " << seed;
    EXPECT_EQ(answer.ways, SearchLayouts(random.problem).ways) << "seed " << seed;
  }
}

// A residual block: changing layouts pays only for both branches together.
TEST(LayoutSearch, SharesACopyAmongItsReaders) {
  LayoutProblem problem;
  problem.nodes = {{{0}, 1}, {{0}, 2}, {{1, 2}, 3}};
  problem.ways = [](int node, std::span<const int> made) -> std::vector<LayoutWay> {
    if (node == 2) return {{{made[0], made[0]}, made[0], 0}};
    return {{{0}, 0, 3}, {{1}, 1, 1}};
  };
  problem.reorder = [](int, int, int) { return 3.0; };
  const LayoutAnswer answer = SearchLayouts(problem);
  EXPECT_EQ(answer.ways, (std::vector<int>{1, 1, 0}));
  EXPECT_EQ(answer.cost, 5);
}

}  // namespace
}  // namespace parax
