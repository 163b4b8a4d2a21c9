#pragma once

#include <functional>
#include <span>
#include <vector>

namespace parax {

// Layouts are numbers here, so that the search knows nothing of kernels.
struct LayoutWay {
  std::vector<int> inputs;  // layout wanted of each input
  int output = 0;           // layout made
  double cost = 0;          // of the node itself, in seconds
};

struct LayoutProblem {
  struct Node {
    std::vector<int> inputs;  // values
    int output = 0;           // value
  };
  std::vector<Node> nodes;  // in order of execution; value 0 is the network's input
  int input_layout = 0;     // of value 0
  // The ways to run a node whose inputs were made in these layouts; at least one. The same call
  // gives the same answer.
  std::function<std::vector<LayoutWay>(int node, std::span<const int> made)> ways;
  // Of copying a value to another layout, forward and backward. Consumers that want the same copy
  // share it.
  std::function<double(int value, int from, int to)> reorder;
};

struct LayoutAnswer {
  std::vector<int> ways;  // by node
  double cost = 0;
};

// The cheapest choice of ways, exactly: for each assignment of layouts (and copies) to the values
// that later nodes still read, the least cost so far is kept. Of equal costs the first found wins,
// so that the answer is deterministic. Takes time exponential in the number of such values, which
// is 2 or 3 in residual networks. Ways that no choice can reach cost nothing.
LayoutAnswer SearchLayouts(const LayoutProblem& problem);

}  // namespace parax
