#include "parax/engine/tune.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "parax/base/error.h"
#include "parax/base/log.h"
#include "parax/base/sha256.h"
#include "parax/data/pipeline.h"
#include "parax/engine/tune_layers_internal.h"
#include "parax/engine/weights.h"

namespace parax {
namespace {

constexpr uint64_t kWarmUp = 1;
constexpr uint64_t kTimed = 3;
constexpr double kEnoughSeconds = 1;  // of timed iterations, a plan and round
constexpr int kRounds = 2;
constexpr double kClearlySlower = 1.05;  // after a round, than the best

// What the answer for a whole network depends on.
std::string NetworkKey(const Graph& graph, const TrainerOptions& options, const TuneOptions& tune) {
  std::string text = fmt::format(
      "{};{};{};{};{};{}", TuneKey(options), Name(options.precision.type),
      MicroBatchSizes(options.train).front(), options.winograd, tune.nhwc, tune.blocked);
  for (const Graph::Node& node : graph.nodes()) {
    text += ";" + LayerKey(graph, node);
    for (const int value : node.inputs) text += fmt::format("<{}", value);
  }
  return Sha256Of(text).substr(0, 16);
}

double SecondsPerIteration(const Graph& graph, TrainerOptions options, const TunedPlan& plan) {
  UseTuned(plan, options);
  options.eval_sizes.clear();
  options.trace = nullptr;  // it is of the run, not of what is tried before
  options.learning_rate = [](uint64_t) { return 0.0; };
  options.loss.probabilities = false;
  if (options.train.samples >= options.train.batch) {
    options.train.samples = options.train.batch * 100;
  }
  const Dims image = graph.dims(0);
  Trainer trainer(graph, options);
  trainer.Load(InitTensors(graph, options.seed));
  const auto input = MakeSyntheticSource(image[2], image[3], image[1], options.loss.classes,
                                         options.train, options.seed);
  std::vector<Clock::time_point> ends;
  const auto report = [&](const StepReport&) { ends.push_back(Clock::now()); };
  const auto enough = [&] {
    return ends.size() > kWarmUp &&
           std::chrono::duration<double>(ends.back() - ends[kWarmUp - 1]).count() > kEnoughSeconds;
  };
  const TrainEnd end = trainer.Train(kWarmUp + kTimed, *input, report, enough);
  if (end.outcome != Outcome::kOk) Fail("timing a plan failed: {}", end.reason);
  double least = INFINITY;  // noise only ever adds
  for (size_t i = kWarmUp; i < ends.size(); ++i) {
    least = std::min(least, std::chrono::duration<double>(ends[i] - ends[i - 1]).count());
  }
  return least;
}

// The fastest by whole steps, timed in turn. Ties go to the first.
TunedPlan Fastest(const Graph& graph, const TrainerOptions& options,
                  const std::vector<TunedPlan>& plans) {
  std::vector<double> seconds(plans.size(), INFINITY);
  double best = INFINITY;
  const auto contends = [&](double s) { return s <= kClearlySlower * best; };
  for (int round = 0; round < kRounds; ++round) {
    if (round > 0 && std::ranges::count_if(seconds, contends) < 2) break;
    for (size_t i = 0; i < plans.size(); ++i) {
      if (round > 0 && !contends(seconds[i])) continue;
      seconds[i] = std::min(seconds[i], SecondsPerIteration(graph, options, plans[i]));
    }
    best = *std::min_element(seconds.begin(), seconds.end());
  }
  std::string line;
  for (size_t i = 0; i < plans.size(); ++i) {
    line += fmt::format("{}{} {:.1f} ms", i == 0 ? "" : ", ", plans[i].kind, 1e3 * seconds[i]);
  }
  const size_t fastest =
      static_cast<size_t>(std::find(seconds.begin(), seconds.end(), best) - seconds.begin());
  Info("plans timed: {} a step; taking {}", line, plans[fastest].kind);
  return plans[fastest];
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
  TuneCache cache(tune.cache);
  TrainerOptions options = run;
  options.train.micro_batch = MicroBatchSizes(run.train).front();
  const std::string key = NetworkKey(graph, options, tune);
  TuneResult result = LayerTuner(graph, options, tune, cache).Search();
  cache.Save();  // measurements are not lost when a step fails
  std::vector<TunedPlan> plans = {result.plan};
  if (tune.nhwc) plans.push_back({false, {}, {}, "nhwc"});
  if (tune.blocked) plans.push_back({true, {}, {}, "blocked"});
  result.plan = Fastest(graph, run, plans);
  cache.SetPlan(key, result.plan);
  cache.Save();
  return result;
}

}  // namespace parax
