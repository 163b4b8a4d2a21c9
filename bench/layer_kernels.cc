// Every kernel of the layers ResNets are made of, on one thread: forward and both backward passes,
// each candidate, in channels last and, where that gives others, in oneDNN's own layout.

#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "parax/engine/op_timer.h"
#include "parax/layers/layers.h"
#include "parax/numa/arena.h"
#include "parax/numa/seat.h"

namespace parax {
namespace {

constexpr int64_t kImages = 4;
constexpr size_t kAlignment = 64;

struct Case {
  std::string name;
  LayerPtr layer;
  std::vector<Dims> inputs;
};

std::vector<Case> Cases() {
  const auto conv = [](int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t side) {
    return Case{fmt::format("conv{}x{}s{}/{}-{}@{}", kernel, kernel, stride, in, out, side),
                Conv({.in_channels = in,
                      .out_channels = out,
                      .kernel = kernel,
                      .stride = stride,
                      .padding = kernel / 2}),
                {{kImages, in, side, side}}};
  };
  const auto norm = [](int64_t channels, int64_t side, bool add) {
    const Dims dims = {kImages, channels, side, side};
    return Case{fmt::format("batch_norm{}/{}@{}", add ? "+add+relu" : "+relu", channels, side),
                BatchNorm({.channels = channels, .add = add, .relu = true}),
                std::vector<Dims>(add ? 2 : 1, dims)};
  };
  return {conv(3, 64, 7, 2, 224),
          conv(64, 64, 3, 1, 56),
          conv(128, 128, 3, 1, 28),
          conv(256, 256, 3, 1, 14),
          conv(512, 512, 3, 1, 7),
          conv(128, 128, 3, 2, 56),
          conv(64, 256, 1, 1, 56),
          conv(512, 128, 1, 1, 28),
          conv(1024, 256, 1, 1, 14),
          conv(512, 2048, 1, 1, 7),
          conv(256, 512, 1, 2, 56),
          conv(16, 16, 3, 1, 32),
          norm(64, 56, false),
          norm(256, 56, true),
          norm(2048, 7, true),
          {"max_pool3x3s2/64@112",
           MaxPool({.kernel = 3, .stride = 2, .padding = 1}),
           {{kImages, 64, 112, 112}}},
          {"global_avg_pool/2048@7", GlobalAvgPool(), {{kImages, 2048, 7, 7}}},
          {"linear/2048-1000", Linear(2048, 1000), {{kImages, 2048}}}};
}

CompileRequest RequestFor(const Case& c, bool blocked) {
  CompileRequest request;
  request.blocked = blocked;
  for (const Dims& dims : c.inputs) {
    request.inputs.push_back(dims.size() == 4 ? Layout::ChannelsLast(dims) : Layout::Plain(dims));
    request.need_input_grad.push_back(true);
  }
  // In its own layout throughout, as between two layers of a network.
  if (blocked) {
    const CompiledLayer first = c.layer->Compile(request);
    if (!first.inputs.empty()) request.inputs = first.inputs;
  }
  return request;
}

std::string PassOf(OpKind kind) {
  std::string name = PassName(kind);
  std::ranges::replace(name, ' ', '_');
  return name;
}

// Operands stay where they are: what fits into the caches comes from them.
void Run(benchmark::State& state, const Case& c, const CompileRequest& request, size_t op) {
  if (!EnterSeat({.pus = {}})) state.SkipWithError("the thread cannot be prepared");
  const CompiledLayer layer = c.layer->Compile(request);
  const CompiledOp& its = layer.op(op);
  size_t bytes = 0;
  std::vector<size_t> offsets;
  for (const TimedOp::Argument& argument : ArgumentsOf(*c.layer, request, layer, its)) {
    offsets.push_back(bytes);
    bytes += (argument.bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  const Arena arena(bytes, {});
  std::memset(arena.data(), 0, bytes);
  std::vector<void*> arguments;
  for (const size_t offset : offsets) arguments.push_back(arena.data() + offset);
  const auto bound = its.kernel->Bind(arguments);
  for (auto _ : state) {
    if (bound->Run({}) != Outcome::kOk) state.SkipWithError("the kernel failed");
  }
  using benchmark::Counter;
  state.counters["flops"] = Counter(its.flops, Counter::kIsIterationInvariantRate);
  state.counters["least_bytes"] = Counter(its.bytes, Counter::kIsIterationInvariantRate);
}

void Register(const Case& c, bool blocked, std::set<std::string>& known) {
  const CompileRequest request = RequestFor(c, blocked);
  const CompiledLayer layer = c.layer->Compile(request);
  const size_t ops = layer.forward.size() + layer.backward.size();
  for (size_t op = 0; op < ops; ++op) {
    std::vector<std::string> names = c.layer->Candidates(request, static_cast<int>(op));
    if (names.empty()) names = {layer.op(op).kernel->implementation()};
    for (const std::string& name : names) {
      if (name.find("ref") != std::string::npos) continue;  // seconds a run
      const std::string title = fmt::format("{}/{}/{}/{}", c.name, PassOf(layer.op(op).kind),
                                            blocked ? "own" : "nhwc", name);
      if (blocked && name.starts_with("parax:") && known.contains(c.name + name)) continue;
      known.insert(c.name + name);
      CompileRequest wanted = request;
      wanted.implementations.resize(ops);
      wanted.implementations[op] = name;
      benchmark::RegisterBenchmark(title.c_str(), Run, c, wanted, op)
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace
}  // namespace parax

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  std::set<std::string> known;
  for (const parax::Case& c : parax::Cases()) {
    for (const bool blocked : {false, true}) parax::Register(c, blocked, known);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
