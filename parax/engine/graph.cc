#include "parax/engine/graph.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "parax/base/error.h"
#include "parax/base/text.h"

namespace parax {

int Graph::Input(int64_t channels, int64_t height, int64_t width) {
  if (!dims_.empty()) Fail("a graph has one input, added first");
  if (channels < 1 || height < 1 || width < 1) {
    Fail("input of {} x {} x {}: every size must be at least 1", channels, height, width);
  }
  dims_.push_back({1, channels, height, width});
  return 0;
}

int Graph::Add(std::string name, LayerPtr layer, std::vector<int> inputs) {
  const std::string label = name.empty() ? layer->kind() : name;
  const bool has_tensors = !layer->Params().empty() || !layer->States().empty();
  if (name.empty() && has_tensors) Fail("a {} layer needs a name", layer->kind());
  if (!name.empty() && std::ranges::find(nodes_, name, &Node::name) != nodes_.end()) {
    Fail("{}: two layers of this name", name);
  }
  std::vector<Dims> input_dims;
  for (const int value : inputs) {
    if (value < 0 || value >= values()) Fail("{}: there is no value {} yet", label, value);
    input_dims.push_back(dims(value));
  }
  try {
    dims_.push_back(layer->OutputDims(input_dims));
  } catch (const Error& error) {
    Fail("{}: {}", label, error.what());
  }
  logits_ = values() - 1;
  nodes_.push_back({std::move(name), std::move(layer), std::move(inputs), logits_});
  return logits_;
}

void Graph::Freeze(const std::vector<std::string>& prefixes) {
  for (const std::string& prefix : prefixes) {
    const auto matches = [&](const Node& node) {
      return !node.name.empty() && node.name.starts_with(prefix);
    };
    if (prefix.empty() || std::ranges::none_of(nodes_, matches)) {
      std::set<std::string> known;  // every dotted beginning of a name
      for (const Node& node : nodes_) {
        for (size_t dot = node.name.find('.'); dot != std::string::npos;
             dot = node.name.find('.', dot + 1)) {
          known.insert(node.name.substr(0, dot));
        }
        if (!node.name.empty()) known.insert(node.name);
      }
      const std::string nearest =
          Nearest(prefix, std::vector<std::string>(known.begin(), known.end()));
      FailUsage("no layer's name starts with '{}'{}", prefix,
                nearest.empty() ? "" : "; did you mean '" + nearest + "'?");
    }
    for (Node& node : nodes_) node.frozen |= matches(node);
  }
}

std::string Graph::label(int node) const {
  const Node& n = nodes_[static_cast<size_t>(node)];
  return n.name.empty() ? fmt::format("{}#{}", n.layer->kind(), node) : n.name;
}

}  // namespace parax
