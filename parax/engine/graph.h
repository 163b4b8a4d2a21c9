#pragma once

#include <string>
#include <vector>

#include "parax/layers/layers.h"

namespace parax {

// A network: layers and how values flow between them, without batch size, memory or kernels.
// Values and nodes are numbered in the order they are added, which is the order of execution.
class Graph {
 public:
  struct Node {
    std::string name;  // prefix of its tensors: "layer1.0.conv1" owns "layer1.0.conv1.weight"
    LayerPtr layer;
    std::vector<int> inputs;  // values
    int output = 0;           // value
    bool frozen = false;      // its parameters get no gradients
  };

  // The network's input: one image is channels x height x width. Must come first.
  int Input(int64_t channels, int64_t height, int64_t width);
  // Adds a node and returns its output value. Throws Error, naming the node, when dims do not fit
  // or the name is taken (names may be empty for layers without tensors).
  int Add(std::string name, LayerPtr layer, std::vector<int> inputs);
  int Add(std::string name, LayerPtr layer, int input) {
    return Add(std::move(name), std::move(layer), std::vector<int>{input});
  }
  // The value the loss is computed from (N x classes). Default: the last one added.
  void SetLogits(int value) { logits_ = value; }
  // Freezes every node whose name starts with one of the prefixes; batch norms among them use their
  // running statistics. Throws UsageError when a prefix matches nothing, naming the nearest.
  void Freeze(const std::vector<std::string>& prefixes);

  const std::vector<Node>& nodes() const { return nodes_; }
  std::string label(int node) const;  // its name, or "relu#7" where it has none
  const Dims& dims(int value) const { return dims_[static_cast<size_t>(value)]; }  // with N = 1
  int values() const { return static_cast<int>(dims_.size()); }
  int logits() const { return logits_; }

 private:
  std::vector<Node> nodes_;
  std::vector<Dims> dims_;
  int logits_ = 0;
};

}  // namespace parax
