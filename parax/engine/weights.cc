#include "parax/engine/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>
#include <span>

#include "parax/base/error.h"
#include "parax/base/parallel_internal.h"
#include "parax/base/philox.h"

namespace parax {
namespace {

std::string TensorName(const Graph::Node& node, const std::string& name) {
  return node.name + "." + name;
}

// Every tensor of the graph and its shape.
std::map<std::string, Dims> Shapes(const Graph& graph) {
  std::map<std::string, Dims> shapes;
  for (const Graph::Node& node : graph.nodes()) {
    for (const ParamSpec& param : node.layer->Params()) {
      shapes[TensorName(node, param.name)] = param.dims;
    }
    for (const StateSpec& state : node.layer->States()) {
      shapes[TensorName(node, state.name)] = state.dims;
    }
  }
  return shapes;
}

// Values that one output of a layer's first parameter sums over (PyTorch's fan_in).
int64_t FanIn(const ParamSpec& weight) { return Product(weight.dims) / weight.dims[0]; }

// Box-Muller on 32-bit draws: both numbers of a pair are used, as large models have 10^8.
void FillNormal(std::span<float> values, double deviation, RandomStream random) {
  for (size_t i = 0; i < values.size(); i += 2) {
    const double u = 1.0 - random.Next() * 0x1p-32;  // (0, 1]: log stays finite
    const double angle = 2 * std::numbers::pi * 0x1p-32 * random.Next();
    const double radius = deviation * std::sqrt(-2 * std::log(u));
    values[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < values.size()) values[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
}

NamedTensor InitParam(const ParamSpec& param, int64_t fan_in, RandomStream random) {
  NamedTensor tensor{param.dims, std::vector<float>(static_cast<size_t>(Product(param.dims)))};
  switch (param.init) {
    case InitRule::kZeros:
      break;
    case InitRule::kOnes:
      tensor.values.assign(tensor.values.size(), 1.0f);
      break;
    case InitRule::kKaimingNormalFanOut: {
      // He et al., "Delving deep into rectifiers" (2015), equation 14; groups as PyTorch does.
      const auto fan_out =
          static_cast<double>(Product(param.dims)) / static_cast<double>(param.dims[1]);
      FillNormal(tensor.values, std::sqrt(2.0 / fan_out), random);
      break;
    }
    case InitRule::kUniformFanIn: {
      const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
      for (float& value : tensor.values) {
        value = static_cast<float>(random.Uniform(-bound, bound));
      }
      break;
    }
  }
  return tensor;
}

std::string Shape(const Dims& dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

// "" or "missing a [1, 2], b [3]"; of another network's weights the first ones say enough.
std::string List(std::string_view what, const std::vector<std::string>& items) {
  constexpr size_t kMost = 6;
  if (items.empty()) return "";
  const std::span<const std::string> named(items.data(), std::min(items.size(), kMost));
  return fmt::format("{} {}{}", what, fmt::join(named, ", "),
                     items.size() > kMost ? fmt::format(" and {} more", items.size() - kMost) : "");
}

// Why the file's tensors are not the wanted ones; "" when they are.
std::string Differences(const std::map<std::string, Dims>& wanted, const TensorMap& file) {
  std::vector<std::string> missing, extra, wrong;
  for (const auto& [name, dims] : wanted) {
    const auto found = file.find(name);
    if (found == file.end()) {
      missing.push_back(name + " " + Shape(dims));
    } else if (found->second.dims != dims) {
      wrong.push_back(
          fmt::format("{} (expected {}, found {})", name, Shape(dims), Shape(found->second.dims)));
    }
  }
  for (const auto& [name, tensor] : file) {
    if (!wanted.contains(name)) extra.push_back(name + " " + Shape(tensor.dims));
  }
  std::vector<std::string> parts;
  for (std::string& part :
       std::vector{List("missing", missing), List("extra", extra), List("wrong shape", wrong)}) {
    if (!part.empty()) parts.push_back(std::move(part));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

void DropBatchCounts(TensorMap& tensors) {
  std::erase_if(tensors, [](const auto& item) {
    return item.first == "num_batches_tracked" || item.first.ends_with(".num_batches_tracked");
  });
}

const Graph::Node* Head(const Graph& graph) {
  const auto& nodes = graph.nodes();
  const auto last = std::find_if(nodes.rbegin(), nodes.rend(),
                                 [](const auto& node) { return node.layer->kind() == "linear"; });
  return last == nodes.rend() ? nullptr : &*last;
}

}  // namespace

int64_t ParameterCount(const Graph& graph) {
  int64_t count = 0;
  for (const Graph::Node& node : graph.nodes()) {
    for (const ParamSpec& param : node.layer->Params()) count += Product(param.dims);
  }
  return count;
}

TensorMap InitTensors(const Graph& graph, uint64_t seed) {
  struct Param {
    ParamSpec spec;
    int64_t fan_in;
    NamedTensor* tensor;
  };
  std::vector<Param> drawn;  // each from a stream of its own, so in any order
  TensorMap tensors;
  for (const Graph::Node& node : graph.nodes()) {
    const std::vector<ParamSpec> params = node.layer->Params();
    for (const ParamSpec& param : params) {
      drawn.push_back({param, FanIn(params.front()), &tensors[TensorName(node, param.name)]});
    }
    for (const StateSpec& state : node.layer->States()) {
      const auto size = static_cast<size_t>(Product(state.dims));
      tensors[TensorName(node, state.name)] = {state.dims, std::vector<float>(size, state.initial)};
    }
  }
  ParallelFor(drawn.size(), [&](size_t i) {
    const Param& param = drawn[i];
    *param.tensor =
        InitParam(param.spec, param.fan_in, RandomStream(seed, RandomUse::kInit, uint64_t{i}));
  });
  return tensors;
}

TensorMap StrictLoad(const Graph& graph, TensorMap file, std::string_view source) {
  DropBatchCounts(file);
  const std::string differences = Differences(Shapes(graph), file);
  if (!differences.empty()) Fail("{} does not fit the model: {}", source, differences);
  for (const auto& [name, tensor] : file) {
    const bool variance = name.ends_with(".running_var");
    const auto bad = std::ranges::find_if(
        tensor.values, [&](float v) { return !std::isfinite(v) || (variance && v < 0); });
    if (bad != tensor.values.end())
      Fail("{}: {} holds {}: not a trained model", source, name, *bad);
  }
  return file;
}

InitFromResult InitFrom(const Graph& graph, TensorMap file, std::string_view source,
                        uint64_t seed) {
  const Graph::Node* head = Head(graph);
  if (head == nullptr) return {StrictLoad(graph, std::move(file), source), "all weights loaded"};
  const std::vector<ParamSpec> params = head->layer->Params();
  const int64_t classes = params.front().dims[0];
  const auto weight = file.find(TensorName(*head, params.front().name));
  // Foreign only in the number of classes: any other difference is an error of StrictLoad.
  const bool foreign = weight != file.end() && weight->second.dims.size() == 2 &&
                       weight->second.dims[1] == params.front().dims[1] &&
                       weight->second.dims[0] != classes;
  if (!foreign) {
    return {StrictLoad(graph, std::move(file), source),
            fmt::format("all weights from {}, its head {} ({} classes) included", source,
                        head->name, classes)};
  }
  const int64_t file_classes = weight->second.dims[0];
  TensorMap fresh = InitTensors(graph, seed);
  for (const ParamSpec& param : params) {
    const std::string name = TensorName(*head, param.name);
    file[name] = std::move(fresh[name]);
  }
  return {StrictLoad(graph, std::move(file), source),
          fmt::format("weights from {} without its head {} of {} classes; the new one has {}",
                      source, head->name, file_classes, classes)};
}

}  // namespace parax
