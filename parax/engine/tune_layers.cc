#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

#include "parax/base/isa.h"
#include "parax/engine/plan_record.h"
#include "parax/engine/tune_layers_internal.h"
#include "parax/layers/reorder.h"

namespace parax {
namespace {

constexpr int kKernels = 2;     // raise it when own kernels come, go, or change their speed
constexpr double kNear = 1.25;  // times the best: may be the fastest within a step
constexpr size_t kMostContenders = 3;
constexpr double kHysteresis = 0.97;  // what a candidate must beat an earlier one by

// Plain reference code, or made for narrower vectors than there are.
bool IsSlow(const std::string& implementation) {
  const auto names = [&](const char* part) {
    return implementation.find(part) != std::string::npos;
  };
  const bool narrow = names("sse41") || (CurrentIsa() == Isa::kAvx512 && names("avx2"));
  return names("ref") || (CurrentIsa() != Isa::kBaseline && narrow);
}

}  // namespace

std::string LayerKey(const Graph& graph, const Graph::Node& node) {
  std::string key = fmt::format("{}{}", node.layer->Signature(), node.frozen);
  for (const int64_t d : graph.dims(node.output)) key += fmt::format(",{}", d);
  for (const ParamSpec& param : node.layer->Params()) {
    for (const int64_t d : param.dims) key += fmt::format("x{}", d);
  }
  return key;
}

std::string TuneKey(const TrainerOptions& options) {
  // Models that differ in their caches alone, or a virtual machine's part of them, share a name.
  return fmt::format("kernels {};{};caches {}/{}/{};{} seats of {}", kKernels,
                     MachineKey(options.precision.emulate), sysconf(_SC_LEVEL1_DCACHE_SIZE),
                     sysconf(_SC_LEVEL2_CACHE_SIZE), sysconf(_SC_LEVEL3_CACHE_SIZE),
                     options.seats.size(), options.seats.at(0).pus.size());
}

LayerTuner::LayerTuner(const Graph& graph, const TrainerOptions& options, const TuneOptions& tune,
                       TuneCache& cache)
    : graph_(graph),
      options_(options),
      tune_(tune),
      cache_(cache),
      workers_(options.seats),
      timer_(workers_, options.domain_nodes),
      machine_(TuneKey(options)),
      needs_grad_(static_cast<size_t>(graph.values())) {
  for (const Graph::Node& node : graph.nodes()) {
    bool needs = !node.frozen && !node.layer->Params().empty();
    for (const int value : node.inputs) needs |= needs_grad_[static_cast<size_t>(value)];
    needs_grad_[static_cast<size_t>(node.output)] = needs;
  }
}

int LayerTuner::Number(const Layout& layout) {
  const auto it = std::find(layouts_.begin(), layouts_.end(), layout);
  if (it == layouts_.end()) layouts_.push_back(layout);
  return static_cast<int>(std::find(layouts_.begin(), layouts_.end(), layout) - layouts_.begin());
}

int LayerTuner::InputLayout() {
  Dims images = graph_.dims(0);
  images[0] = options_.train.micro_batch;
  return Number(Layout::ChannelsLast(images, options_.precision.type));
}

CompileRequest LayerTuner::Request(int node, std::span<const int> made, bool blocked) const {
  const Graph::Node& n = graph_.nodes()[static_cast<size_t>(node)];
  CompileRequest request;
  for (const int layout : made) {
    const Layout& input = layouts_[static_cast<size_t>(layout)];
    request.inputs.push_back(TakenBy(graph_, n, input));
  }
  for (const int v : n.inputs) {
    request.need_input_grad.push_back(needs_grad_[static_cast<size_t>(v)]);
  }
  request.need_param_grad = !n.frozen;
  request.blocked = blocked;
  request.winograd = options_.winograd;
  request.emulate = options_.precision.emulate;
  request.threads = static_cast<int>(options_.seats[0].pus.size());
  return request;
}

std::vector<std::vector<LayerTuner::Candidate>> LayerTuner::Candidates(
    int node, const CompileRequest& request, const CompiledLayer& layer) {
  const Layer& rule = *graph_.nodes()[static_cast<size_t>(node)].layer;
  const auto candidate = [&](const CompiledLayer& made, size_t op) {
    const CompiledOp& its = made.op(op);
    Candidate result{
        its.kernel->implementation(), its, ArgumentsOf(rule, request, made, its), {}, 0};
    for (const Argument& argument : its.arguments) {
      if (argument.role == Role::kParamForm && result.form.empty()) {
        result.form = made.forms[static_cast<size_t>(argument.index)].layout;
      }
    }
    return result;
  };
  const size_t ops = layer.forward.size() + layer.backward.size();
  std::vector<std::vector<Candidate>> all(ops);
  std::vector<std::vector<std::string>> names(ops);  // others
  size_t most = 0;
  for (size_t op = 0; op < ops; ++op) {
    all[op] = {candidate(layer, op)};
    for (const std::string& name : rule.Candidates(request, static_cast<int>(op))) {
      if (name == all[op][0].name || IsSlow(name)) continue;
      if (!options_.winograd && name == "parax:winograd") continue;
      names[op].push_back(name);
    }
    most = std::max(most, names[op].size());
  }
  for (size_t i = 0; i < most; ++i) {  // compiling is slow: one of each op at a time
    CompileRequest wanted = request;
    wanted.implementations.resize(ops);
    for (size_t op = 0; op < ops; ++op) {
      if (i < names[op].size()) wanted.implementations[op] = names[op][i];
    }
    const CompiledLayer made = rule.Compile(wanted);
    for (size_t op = 0; op < ops; ++op) {
      if (i < names[op].size()) all[op].push_back(candidate(made, op));
    }
  }
  return all;
}

void LayerTuner::Time(int number, const CompiledLayer& layer, std::vector<Candidate>& candidates) {
  const Graph::Node& node = graph_.nodes()[static_cast<size_t>(number)];
  const Layer& rule = *node.layer;
  std::string shapes = machine_ + ";" + rule.Signature();
  for (const Layout& input : layer.inputs) shapes += ";" + input.ToString();
  shapes += ";" + layer.output.ToString();
  shapes += node.frozen ? ";frozen" : "";
  for (const int v : node.inputs) shapes += needs_grad_[static_cast<size_t>(v)] ? "g" : "-";
  for (const ParamSpec& param : rule.Params()) shapes += ";" + Layout::Plain(param.dims).ToString();
  std::vector<std::string> keys;
  std::vector<TimedOp> timed;
  bool known = true;
  for (const Candidate& c : candidates) {
    keys.push_back(fmt::format("{};{};{}", shapes, static_cast<int>(c.op.kind), c.name));
    timed.push_back({c.op.kernel, c.arguments});
    known = known && cache_.Times(keys.back());
  }
  if (!known) {  // all of them: times are compared with one another
    const std::vector<OpTimes> times = timer_.Race(timed);
    for (size_t i = 0; i < times.size(); ++i) cache_.SetTimes(keys[i], times[i]);
  }
  for (size_t i = 0; i < keys.size(); ++i) candidates[i].seconds = cache_.Times(keys[i])->cold;
}

double LayerTuner::ReorderSeconds(const Layout& from, const Layout& to) {
  const std::string key = fmt::format("{};reorder;{};{}", machine_, from.ToString(), to.ToString());
  if (!cache_.Times(key)) {
    std::shared_ptr<const Kernel> kernel;
    OnSeat([&] { kernel = MakeReorder(from, to); });
    TimedOp op{kernel, {{from.bytes()}, {to.bytes()}}};
    if (kernel->scratch_bytes() > 0) op.arguments.push_back({kernel->scratch_bytes()});
    cache_.SetTimes(key, timer_.Race({op})[0]);
  }
  return cache_.Times(key)->cold;
}

// All seats share the writing of a form: each takes its part of a copy that is made by all at once.
double LayerTuner::FormSeconds(const Layout& form) {
  const Layout plain = Layout::Plain({1 << 22});  // bandwidth does not depend on the form
  return ReorderSeconds(plain, plain) * static_cast<double>(form.bytes()) /
         static_cast<double>(plain.bytes()) / static_cast<double>(workers_.size());
}

// The layer's own choice, the best, then those that come near it, fastest first.
std::vector<Contender> LayerTuner::Near(const std::vector<Candidate>& candidates, size_t best) {
  std::vector<size_t> near;
  for (size_t i = 1; i < candidates.size(); ++i) {
    if (i != best && candidates[i].seconds < kNear * candidates[best].seconds) near.push_back(i);
  }
  std::ranges::stable_sort(near, {}, [&](size_t i) { return candidates[i].seconds; });
  if (best != 0) near.insert(near.begin(), best);
  near.insert(near.begin(), 0);
  if (near.size() > kMostContenders) near.resize(kMostContenders);
  std::vector<Contender> contenders;
  for (const size_t i : near) {
    const Candidate& c = candidates[i];
    contenders.push_back({c.name, c.form, c.form.empty() ? 0 : FormSeconds(c.form)});
  }
  return contenders;
}

LayerTuner::Variant LayerTuner::Measure(int node, const CompileRequest& request,
                                        const CompiledLayer& layer) {
  Variant variant;
  for (const Layout& input : layer.inputs.empty() ? request.inputs : layer.inputs) {
    variant.way.inputs.push_back(Number(input));
  }
  variant.way.output = Number(layer.output);
  variant.blocked = request.blocked;
  Layout packed;  // the form that an earlier op of the layer reads already
  std::vector<std::vector<Candidate>> all;
  OnSeat([&] { all = Candidates(node, request, layer); });
  for (size_t op = 0; op < all.size(); ++op) {
    std::vector<Candidate>& candidates = all[op];
    Time(node, layer, candidates);
    // What the form of its own costs counts against a candidate.
    const auto cost = [&](const Candidate& c) {
      const bool extra = !c.form.empty() && !(c.form == packed);
      return c.seconds + (extra ? FormSeconds(c.form) : 0);
    };
    size_t best = 0;
    for (size_t i = 1; i < candidates.size(); ++i) {
      if (cost(candidates[i]) < kHysteresis * cost(candidates[best])) best = i;
    }
    const Candidate& chosen = candidates[best];
    variant.way.cost += cost(chosen);
    variant.implementations.push_back(chosen.name);
    if (!chosen.form.empty()) packed = chosen.form;
    ContendingLayer::Op& line = variant.layer.ops.emplace_back();
    line.line.pass = PassName(chosen.op.kind);
    line.line.layout = layer.output.ToString();
    line.line.flops = chosen.op.flops;
    line.contenders = Near(candidates, best);
  }
  return variant;
}

const std::vector<LayerTuner::Variant>& LayerTuner::Variants(int node, std::span<const int> made) {
  const Graph::Node& n = graph_.nodes()[static_cast<size_t>(node)];
  std::string key = LayerKey(graph_, n);
  for (const int value : n.inputs) key += needs_grad_[static_cast<size_t>(value)] ? "g" : "-";
  const std::string layer_key = key;
  for (const int layout : made) key += fmt::format(";{}", layout);
  std::vector<Variant>& variants = known_[key];
  if (!variants.empty()) return variants;
  for (const bool blocked : {false, true}) {
    if (blocked ? !tune_.blocked : !tune_.nhwc) continue;
    const CompileRequest request = Request(node, made, blocked);
    CompiledLayer layer;
    OnSeat([&] { layer = n.layer->Compile(request); });
    std::string works_in = layer_key;
    for (const Layout& input : layer.inputs.empty() ? request.inputs : layer.inputs) {
      works_in += ";" + input.ToString();
    }
    works_in += ";" + layer.output.ToString();
    if (!measured_.contains(works_in)) {
      measured_[works_in] = Measure(node, request, layer);
      measured_[works_in].layer.key = works_in;
    }
    Variant variant = measured_[works_in];
    variant.blocked = blocked;
    const auto same = [&](const Variant& v) {
      return v.way.inputs == variant.way.inputs && v.way.output == variant.way.output;
    };
    if (std::none_of(variants.begin(), variants.end(), same)) variants.push_back(variant);
  }
  tune_.progress(fmt::format("layer {} of {}", node + 1, graph_.nodes().size()));
  return variants;
}

TunedPlan LayerTuner::Search() {
  LayoutProblem problem;
  problem.input_layout = InputLayout();
  for (const Graph::Node& node : graph_.nodes()) {
    problem.nodes.push_back({node.inputs, node.output});
  }
  problem.ways = [&](int node, std::span<const int> made) {
    std::vector<LayoutWay> ways;
    for (const Variant& variant : Variants(node, made)) ways.push_back(variant.way);
    return ways;
  };
  problem.reorder = [&](int value, int from, int to) {
    const Layout& a = layouts_[static_cast<size_t>(from)];
    const Layout& b = layouts_[static_cast<size_t>(to)];
    return ReorderSeconds(a, b) +
           (needs_grad_[static_cast<size_t>(value)] ? ReorderSeconds(b, a) : 0);
  };
  const LayoutAnswer answer = SearchLayouts(problem);
  TunedPlan plan;
  plan.kind = "mixed";
  plan.blocked = !tune_.nhwc;
  std::vector<int> made(static_cast<size_t>(graph_.values()), problem.input_layout);
  for (size_t n = 0; n < graph_.nodes().size(); ++n) {
    const Graph::Node& node = graph_.nodes()[n];
    std::vector<int> inputs;
    for (const int value : node.inputs) inputs.push_back(made[static_cast<size_t>(value)]);
    const Variant& variant =
        Variants(static_cast<int>(n), inputs)[static_cast<size_t>(answer.ways[n])];
    made[static_cast<size_t>(node.output)] = variant.way.output;
    const std::string label = graph_.label(static_cast<int>(n));
    if (variant.blocked != plan.blocked) plan.layouts[label] = variant.blocked;
    if (!variant.implementations.empty()) plan.implementations[label] = variant.implementations;
  }
  timer_.Free();
  return plan;
}

std::vector<ContendingLayer> LayerTuner::Contenders(const TunedPlan& plan) {
  std::vector<ContendingLayer> layers;
  std::vector<int> made(static_cast<size_t>(graph_.values()), InputLayout());
  for (size_t n = 0; n < graph_.nodes().size(); ++n) {
    const Graph::Node& node = graph_.nodes()[n];
    const std::string label = graph_.label(static_cast<int>(n));
    const auto named = plan.layouts.find(label);
    const bool blocked = named == plan.layouts.end() ? plan.blocked : named->second;
    std::vector<int> inputs;
    for (const int value : node.inputs) inputs.push_back(made[static_cast<size_t>(value)]);
    const std::vector<Variant>& variants = Variants(static_cast<int>(n), inputs);
    // Where both layouts come to the same there is one variant.
    const auto it = std::ranges::find(variants, blocked, &Variant::blocked);
    const Variant& variant = it == variants.end() ? variants[0] : *it;
    made[static_cast<size_t>(node.output)] = variant.way.output;
    ContendingLayer layer = variant.layer;
    const auto chosen = plan.implementations.find(label);
    for (size_t op = 0; chosen != plan.implementations.end() && op < layer.ops.size(); ++op) {
      std::vector<Contender>& contenders = layer.ops[op].contenders;
      const auto own =
          std::ranges::find(contenders, chosen->second[op], &Contender::implementation);
      std::rotate(contenders.begin(), own, own + 1);
    }
    layers.push_back(std::move(layer));
  }
  return layers;
}

}  // namespace parax
