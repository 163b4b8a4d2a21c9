#include "parax/models/resnet.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "parax/base/error.h"
#include "parax/base/text.h"

namespace parax {
namespace {

enum class Block : uint8_t { kBasic, kBottleneck, kCifar };

// He et al., "Deep residual learning" (2016); Xie et al., "Aggregated residual transformations"
// (2017); Zagoruyko, Komodakis, "Wide residual networks" (2016).
struct Architecture {
  std::string name;
  Block block;
  std::vector<int64_t> blocks;  // of each stage
  int64_t width = 64;           // torchvision's width_per_group
  int64_t groups = 1;
};

const std::vector<Architecture>& Known() {
  static const std::vector<Architecture> known = {
      {"resnet18", Block::kBasic, {2, 2, 2, 2}},
      {"resnet34", Block::kBasic, {3, 4, 6, 3}},
      {"resnet50", Block::kBottleneck, {3, 4, 6, 3}},
      {"resnet101", Block::kBottleneck, {3, 4, 23, 3}},
      {"resnet152", Block::kBottleneck, {3, 8, 36, 3}},
      {"wide_resnet50_2", Block::kBottleneck, {3, 4, 6, 3}, 128},
      {"wide_resnet101_2", Block::kBottleneck, {3, 4, 23, 3}, 128},
      {"resnext50_32x4d", Block::kBottleneck, {3, 4, 6, 3}, 4, 32},
      {"resnext101_32x8d", Block::kBottleneck, {3, 4, 23, 3}, 8, 32},
      {"resnext101_64x4d", Block::kBottleneck, {3, 4, 23, 3}, 4, 64},
      {"resnet20", Block::kCifar, {3, 3, 3}},
      {"resnet32", Block::kCifar, {5, 5, 5}},
      {"resnet44", Block::kCifar, {7, 7, 7}},
      {"resnet56", Block::kCifar, {9, 9, 9}},
      {"resnet110", Block::kCifar, {18, 18, 18}},
  };
  return known;
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    parts.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

int64_t PositiveNumber(const std::string& text, const std::string& name) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || number < 1 || number > 10'000) {
    FailUsage("model '{}': '{}' is not a number of 1 to 10000", name, text);
  }
  return number;
}

// "resnet:bottleneck:1,2,1,1:16:1"
Architecture ParseDescription(const std::string& name) {
  const std::vector<std::string> parts = Split(name, ':');
  const bool basic = parts.size() > 1 && parts[1] == "basic";
  if (parts.size() < 3 || parts.size() > 5 || !(basic || parts[1] == "bottleneck")) {
    FailUsage(
        "model '{}': write resnet:basic|bottleneck:BLOCKS[:WIDTH[:GROUPS]], such as "
        "resnet:bottleneck:3,4,6,3:4:32",
        name);
  }
  Architecture result{name, basic ? Block::kBasic : Block::kBottleneck, {}};
  for (const std::string& count : Split(parts[2], ',')) {
    result.blocks.push_back(PositiveNumber(count, name));
  }
  if (result.blocks.size() != 4) FailUsage("model '{}': give the blocks of four stages", name);
  if (parts.size() > 3) result.width = PositiveNumber(parts[3], name);
  if (parts.size() > 4) result.groups = PositiveNumber(parts[4], name);
  if (basic && (result.width != 64 || result.groups != 1)) {
    FailUsage("model '{}': basic blocks have width 64 and one group", name);
  }
  return result;
}

Architecture Find(const std::string& name) {
  if (name.starts_with("resnet:")) return ParseDescription(name);
  const auto& known = Known();
  const auto found = std::ranges::find(known, name, &Architecture::name);
  if (found != known.end()) return *found;
  const std::vector<std::string> names = ModelNames();
  const std::string nearest = Nearest(name, names);
  FailUsage("no model is called '{}'{}; known: {}", name,
            nearest.empty() ? "" : fmt::format(": did you mean '{}'?", nearest),
            fmt::join(names, ", "));
}

// Adds the parts that all ResNets are made of to a graph.
class Builder {
 public:
  Builder(const ModelSpec& spec, const Architecture& architecture)
      : spec_(spec), architecture_(architecture) {}

  Graph Build() {
    const int input = graph_.Input(spec_.channels, spec_.image_size, spec_.image_size);
    const bool cifar = architecture_.block == Block::kCifar;
    int value = cifar ? CifarStem(input) : ImageNetStem(input);
    const int64_t first = cifar ? 16 : 64;
    for (size_t stage = 0; stage < architecture_.blocks.size(); ++stage) {
      const int64_t planes = first << stage;
      for (int64_t i = 0; i < architecture_.blocks[stage]; ++i) {
        const std::string prefix = fmt::format("layer{}.{}.", stage + 1, i);
        value = AddBlock(prefix, value, planes, stage > 0 && i == 0 ? 2 : 1);
      }
    }
    value = graph_.Add("", GlobalAvgPool(), value);
    if (spec_.dropout > 0) value = graph_.Add("", Dropout(spec_.dropout, 0), value);
    const int64_t features = graph_.dims(value)[1];
    graph_.Add(cifar ? "linear" : "fc", Linear(features, spec_.classes), value);
    return std::move(graph_);
  }

 private:
  int64_t Channels(int value) const { return graph_.dims(value)[1]; }

  int AddConv(const std::string& name, int value, int64_t out, int64_t kernel, int64_t stride,
              int64_t padding, int64_t groups = 1) {
    return graph_.Add(name,
                      Conv({.in_channels = Channels(value),
                            .out_channels = out,
                            .kernel = kernel,
                            .stride = stride,
                            .padding = padding,
                            .groups = groups}),
                      value);
  }

  int AddNorm(const std::string& name, int value, bool relu) {
    return graph_.Add(
        name, BatchNorm({.channels = Channels(value), .relu = relu, .frozen = spec_.freeze_norm}),
        value);
  }

  // The last norm of a block's branch, with what follows it: y = relu(bn(value) + shortcut).
  int AddLastNorm(const std::string& name, int value, int shortcut) {
    return graph_.Add(name,
                      BatchNorm({.channels = Channels(value),
                                 .add = true,
                                 .relu = true,
                                 .frozen = spec_.freeze_norm,
                                 .zero_init_scale = spec_.zero_init_residual}),
                      {value, shortcut});
  }

  int CifarStem(int input) {
    return AddNorm("bn1", AddConv("conv1", input, 16, 3, 1, 1), /*relu=*/true);
  }

  int ImageNetStem(int input) {
    const int value = AddNorm("bn1", AddConv("conv1", input, 64, 7, 2, 3), /*relu=*/true);
    return graph_.Add("", MaxPool({.kernel = 3, .stride = 2, .padding = 1}), value);
  }

  int AddBlock(const std::string& prefix, int input, int64_t planes, int64_t stride) {
    const bool bottleneck = architecture_.block == Block::kBottleneck;
    const int branch = bottleneck ? BottleneckBranch(prefix, input, planes, stride)
                                  : BasicBranch(prefix, input, planes, stride);
    const int shortcut = AddShortcut(prefix, input, Channels(branch), stride);
    return AddLastNorm(prefix + (bottleneck ? "bn3" : "bn2"), branch, shortcut);
  }

  // Up to the last convolution.
  int BasicBranch(const std::string& prefix, int value, int64_t planes, int64_t stride) {
    value = AddConv(prefix + "conv1", value, planes, 3, stride, 1);
    value = AddNorm(prefix + "bn1", value, /*relu=*/true);
    return AddConv(prefix + "conv2", value, planes, 3, 1, 1);
  }

  // Likewise. The stride is in the 3x3 convolution, as in torchvision (ResNet "v1.5").
  int BottleneckBranch(const std::string& prefix, int value, int64_t planes, int64_t stride) {
    const int64_t width = planes * architecture_.width / 64 * architecture_.groups;
    value = AddConv(prefix + "conv1", value, width, 1, 1, 0);
    value = AddNorm(prefix + "bn1", value, /*relu=*/true);
    value = AddConv(prefix + "conv2", value, width, 3, stride, 1, architecture_.groups);
    value = AddNorm(prefix + "bn2", value, /*relu=*/true);
    return AddConv(prefix + "conv3", value, planes * 4, 1, 1, 0);
  }

  int AddShortcut(const std::string& prefix, int value, int64_t channels, int64_t stride) {
    if (stride == 1 && Channels(value) == channels) return value;
    if (architecture_.block == Block::kCifar) {
      return graph_.Add("", ChannelPad(channels, channels / 4, stride), value);
    }
    value = AddConv(prefix + "downsample.0", value, channels, 1, stride, 0);
    return AddNorm(prefix + "downsample.1", value, /*relu=*/false);
  }

  ModelSpec spec_;
  Architecture architecture_;
  Graph graph_;
};

}  // namespace

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const Architecture& architecture : Known()) names.push_back(architecture.name);
  return names;
}

ModelSpec Resolved(ModelSpec spec) {
  const bool cifar = Find(spec.name).block == Block::kCifar;
  if (spec.classes == 0) spec.classes = cifar ? 10 : 1000;
  if (spec.image_size == 0) spec.image_size = cifar ? 32 : 224;
  return spec;
}

Graph BuildModel(const ModelSpec& spec) {
  if (spec.classes < 0 || spec.image_size < 0 || spec.channels < 1) {
    FailUsage("model '{}': {} classes on {} x {} images of {} channels cannot be built", spec.name,
              spec.classes, spec.image_size, spec.image_size, spec.channels);
  }
  return Builder(Resolved(spec), Find(spec.name)).Build();
}

Preprocessing DefaultPreprocessing(const ModelSpec& spec) {
  const bool cifar = Find(spec.name).block == Block::kCifar;
  Preprocessing result;
  result.crop = Resolved(spec).image_size;
  if (cifar) {
    result.resize = result.crop;
    result.mean = {0.4914f, 0.4822f, 0.4465f};
    result.stddev = {0.2470f, 0.2435f, 0.2616f};
  } else {
    result.resize = std::lround(static_cast<double>(result.crop) * 256 / 224);
    result.mean = {0.485f, 0.456f, 0.406f};
    result.stddev = {0.229f, 0.224f, 0.225f};
  }
  if (spec.channels != 3) {  // gray or special images: the colours' average for each channel
    const auto average = [&](const std::vector<float>& v) {
      return std::vector<float>(static_cast<size_t>(spec.channels), (v[0] + v[1] + v[2]) / 3);
    };
    result.mean = average(result.mean);
    result.stddev = average(result.stddev);
  }
  return result;
}

}  // namespace parax
