#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parax/engine/graph.h"
#include "parax/engine/tensors.h"

// A graph's tensors by name: node.name + "." + the parameter's or state's name, as in PyTorch's
// state dict. num_batches_tracked, which nothing here uses, is accepted everywhere and dropped.
namespace parax {

// Trainable values of the graph (states do not count).
int64_t ParameterCount(const Graph& graph);

// Fresh parameters and states as PyTorch's formulas have them: kaiming_normal_(mode="fan_out",
// nonlinearity="relu"); uniform in +-1/sqrt(fan_in of the layer's weight). A parameter's numbers
// depend only on seed and its index in graph order (RandomUse::kInit).
TensorMap InitTensors(const Graph& graph, uint64_t seed);

// The file's tensors when they are exactly the graph's. Otherwise one Error that names all missing,
// extra and wrongly shaped ones, with expected and found shapes; `source` stands for the file.
TensorMap StrictLoad(const Graph& graph, TensorMap file, std::string_view source);

// StrictLoad for fine-tuning: the head (the last linear layer) may have another number of classes
// in the file, and is then left out of it and freshly initialised. `line` says what was done.
struct InitFromResult {
  TensorMap tensors;
  std::string line;
};
InitFromResult InitFrom(const Graph& graph, TensorMap file, std::string_view source, uint64_t seed);

}  // namespace parax
