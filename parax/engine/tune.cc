#include "parax/engine/tune.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "parax/base/sha256.h"
#include "parax/engine/tune_layers_internal.h"
#include "parax/engine/tune_steps_internal.h"

namespace parax {
namespace {

constexpr std::chrono::seconds kEnough{70};  // close calls stay as they are then

// What the answer for a whole network depends on.
std::string NetworkKey(const Graph& graph, const TrainerOptions& options, const TuneOptions& tune) {
  std::string text = fmt::format(
      "{};{};{};{};{};{}", TuneKey(options), Name(options.precision.type),
      MicroBatchSizes(options.train).front(), options.winograd, tune.nhwc, tune.blocked);
  for (const int64_t d : graph.dims(0)) text += fmt::format(",{}", d);
  for (const Graph::Node& node : graph.nodes()) {
    text += ";" + LayerKey(graph, node);
    for (const int value : node.inputs) text += fmt::format("<{}", value);
  }
  return Sha256Of(text).substr(0, 16);
}

}  // namespace

void UseTuned(const TunedPlan& plan, TrainerOptions& options) {
  options.blocked = plan.blocked;
  options.layouts = plan.layouts;
  options.plan = {};
  if (plan.implementations.empty()) return;
  options.plan.Set(Mode::kTraining, MicroBatchSizes(options.train).front(), plan.implementations);
}

std::optional<TunedPlan> FindTuned(const Graph& graph, const TrainerOptions& options,
                                   const TuneOptions& tune) {
  return TuneCache(tune.cache).Plan(NetworkKey(graph, options, tune));
}

TuneResult Tune(const Graph& graph, const TrainerOptions& run, const TuneOptions& tune) {
  const TuneLimits limits{tune.progress, Clock::now() + kEnough};
  TuneCache cache(tune.cache);
  TrainerOptions options = run;
  options.train.micro_batch = MicroBatchSizes(run.train).front();
  const std::string key = NetworkKey(graph, options, tune);
  LayerTuner layers(graph, options, tune, cache);
  const TunedPlan searched = layers.Search();
  cache.Save();  // measurements are not lost when a step fails
  std::vector<TunedPlan> plans = {searched};
  if (tune.nhwc) plans.push_back({false, {}, {}, "nhwc"});
  if (tune.blocked) plans.push_back({true, {}, {}, "blocked"});
  std::vector<StepTimes> times;
  const TunedPlan base = Fastest(graph, run, plans, limits, times);
  const size_t index =
      static_cast<size_t>(std::ranges::find(plans, base.kind, &TunedPlan::kind) - plans.begin());
  const std::vector<ContendingLayer> contenders = layers.Contenders(base);
  TuneResult result = Describe(graph, base, times[index], contenders);
  TuneResult refined = Refine(graph, run, base, times[index], contenders, limits);
  const bool differs = !std::ranges::equal(result.ops, refined.ops, {}, &TunedOp::implementation,
                                           &TunedOp::implementation);
  if (differs) {
    times = {times[index], {}};
    const TunedPlan taken = Fastest(graph, run, {base, refined.plan}, limits, times);
    if (taken.kind == refined.plan.kind) result = std::move(refined);
  }
  cache.SetPlan(key, result.plan);
  cache.Save();
  return result;
}

}  // namespace parax
