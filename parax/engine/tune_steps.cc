#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "parax/base/log.h"
#include "parax/engine/rehearsal_internal.h"
#include "parax/engine/tune_steps_internal.h"

namespace parax {
namespace {

constexpr uint64_t kMostTimed = 3;    // iterations of a plan and round
constexpr double kEnoughSeconds = 1;  // of timed iterations, a plan and round
constexpr int kRounds = 2;
constexpr double kClearlySlower = 1.03;  // after a round, than the best
constexpr double kHysteresis = 0.98;     // what a contender must beat the plan's own by

// Seconds of each contender of each op, by the key of its layer.
class Measured {
 public:
  // Of steps in which op k of every layer took its contender turn % (number of contenders).
  void Add(const std::vector<ContendingLayer>& layers, const StepTimes& times, size_t turn) {
    for (size_t n = 0; n < layers.size(); ++n) {
      for (size_t op = 0; op < layers[n].ops.size(); ++op) {
        const size_t count = layers[n].ops[op].contenders.size();
        Mean& mean = means_[{layers[n].key, op, turn % count}];
        mean.sum += times.ops[n].at(op);
        ++mean.count;
      }
    }
  }
  // Infinite where it was not measured.
  double Seconds(const std::string& key, size_t op, size_t contender) const {
    const auto it = means_.find({key, op, contender});
    return it == means_.end() ? INFINITY : it->second.sum / it->second.count;
  }

 private:
  struct Mean {
    double sum = 0, count = 0;
  };
  std::map<std::tuple<std::string, size_t, size_t>, Mean> means_;
};

// Each op of the layer with its fastest contender, weights' packed forms counted.
std::vector<TunedOp> Choose(const ContendingLayer& layer, const Measured& measured) {
  std::vector<TunedOp> ops;
  Layout packed;  // the form that an earlier op of the layer reads already
  for (size_t op = 0; op < layer.ops.size(); ++op) {
    const std::vector<Contender>& contenders = layer.ops[op].contenders;
    std::vector<double> cost;
    for (size_t c = 0; c < contenders.size(); ++c) {
      const Layout& form = contenders[c].form;
      cost.push_back(measured.Seconds(layer.key, op, c) +
                     (form.empty() || form == packed ? 0 : contenders[c].form_seconds));
    }
    size_t best = static_cast<size_t>(std::ranges::min_element(cost) - cost.begin());
    if (cost[best] > kHysteresis * cost[0]) best = 0;
    TunedOp line = layer.ops[op].line;
    line.implementation = contenders[best].implementation;
    line.seconds = measured.Seconds(layer.key, op, best);
    cost[best] = INFINITY;
    const size_t second = static_cast<size_t>(std::ranges::min_element(cost) - cost.begin());
    if (std::isfinite(cost[second])) {
      line.runner_up = contenders[second].implementation;
      line.runner_up_seconds = measured.Seconds(layer.key, op, second);
    }
    if (!contenders[best].form.empty()) packed = contenders[best].form;
    ops.push_back(std::move(line));
  }
  return ops;
}

}  // namespace

StepTimes TimeSteps(const Graph& graph, const TrainerOptions& run, const TunedPlan& plan) {
  TrainerOptions options = run;
  UseTuned(plan, options);
  Rehearsal rehearsal(graph, options, 0);
  std::vector<Clock::time_point> ends = {Clock::now()};
  const auto enough = [&] {
    return std::chrono::duration<double>(ends.back() - ends.front()).count() >= kEnoughSeconds;
  };
  const auto train = [&](uint64_t last, const std::function<bool()>& interrupted) {
    rehearsal.Train(
        last, [&](const StepReport&) { ends.push_back(Clock::now()); }, interrupted);
  };
  const auto never = [] { return false; };
  train(1, never);
  if (!enough()) {  // nothing that only a first step does can matter in one as long as this
    rehearsal.trace().ClearSums();
    ends = {Clock::now()};
    train(1 + kMostTimed, enough);
  }
  StepTimes times;
  times.seconds = std::chrono::duration<double>(ends.back() - ends.front()).count() /
                  static_cast<double>(ends.size() - 1);
  const std::vector<double> seconds = rehearsal.OpSeconds();
  times.ops.resize(graph.nodes().size());
  for (size_t op = 0; op < seconds.size(); ++op) {
    const int node = rehearsal.trainer().plans()[0]->ops[op].node;
    if (node >= 0) times.ops[static_cast<size_t>(node)].push_back(seconds[op]);
  }
  return times;
}

TunedPlan Fastest(const Graph& graph, const TrainerOptions& options,
                  const std::vector<TunedPlan>& plans, const TuneLimits& limits,
                  std::vector<StepTimes>& times) {
  times.resize(plans.size());
  double best = INFINITY;
  const auto contends = [&](const StepTimes& t) { return t.seconds <= kClearlySlower * best; };
  for (int round = 0; round < kRounds; ++round) {
    if (round > 0 && (std::ranges::count_if(times, contends) < 2 || limits.Passed())) break;
    for (size_t i = 0; i < plans.size(); ++i) {
      const bool known = std::isfinite(times[i].seconds);
      if (known && (round == 0 || !contends(times[i]))) continue;
      limits.progress(fmt::format("steps of plan {} of {} ({}), round {} of at most {}", i + 1,
                                  plans.size(), plans[i].kind, round + 1, kRounds));
      StepTimes step = TimeSteps(graph, options, plans[i]);
      step.seconds = std::min(step.seconds, times[i].seconds);
      times[i] = std::move(step);
    }
    best = std::ranges::min_element(times, {}, &StepTimes::seconds)->seconds;
  }
  std::string line;
  for (size_t i = 0; i < plans.size(); ++i) {
    line +=
        fmt::format("{}{} {:.1f} ms", i == 0 ? "" : ", ", plans[i].kind, 1e3 * times[i].seconds);
  }
  const auto fastest = std::ranges::find(times, best, &StepTimes::seconds) - times.begin();
  const TunedPlan& plan = plans[static_cast<size_t>(fastest)];
  limits.progress("");
  Info("plans timed: {} a step; taking {}", line, plan.kind);
  return plan;
}

TuneResult Describe(const Graph& graph, const TunedPlan& plan, const StepTimes& times,
                    const std::vector<ContendingLayer>& layers) {
  TuneResult result;
  result.plan = plan;
  for (size_t n = 0; n < layers.size(); ++n) {
    for (size_t op = 0; op < layers[n].ops.size(); ++op) {
      TunedOp& line = result.ops.emplace_back(layers[n].ops[op].line);
      line.layer = graph.label(static_cast<int>(n));
      line.implementation = layers[n].ops[op].contenders[0].implementation;
      line.seconds = times.ops[n].at(op);
      result.seconds += line.seconds;
    }
  }
  return result;
}

TuneResult Refine(const Graph& graph, const TrainerOptions& options, const TunedPlan& plan,
                  const StepTimes& times, const std::vector<ContendingLayer>& layers,
                  const TuneLimits& limits) {
  Measured measured;
  measured.Add(layers, times, 0);
  size_t most = 0;
  for (const ContendingLayer& layer : layers) {
    for (const ContendingLayer::Op& op : layer.ops) most = std::max(most, op.contenders.size());
  }
  for (size_t turn = 1; turn < most && (turn == 1 || !limits.Passed()); ++turn) {
    limits.progress(fmt::format("steps with kernels that come near, {} of {}", turn, most - 1));
    TunedPlan other = plan;
    for (size_t n = 0; n < layers.size(); ++n) {
      std::vector<std::string> names;
      for (const ContendingLayer::Op& op : layers[n].ops) {
        names.push_back(op.contenders[turn % op.contenders.size()].implementation);
      }
      if (!names.empty()) other.implementations[graph.label(static_cast<int>(n))] = names;
    }
    measured.Add(layers, TimeSteps(graph, options, other), turn);
  }
  TuneResult result;
  result.plan = plan;
  result.plan.kind += ", tuned";
  for (size_t n = 0; n < layers.size(); ++n) {
    const std::string label = graph.label(static_cast<int>(n));
    std::vector<std::string> names;
    for (TunedOp& op : Choose(layers[n], measured)) {
      names.push_back(op.implementation);
      result.seconds += op.seconds;
      op.layer = label;
      result.ops.push_back(std::move(op));
    }
    if (!names.empty()) result.plan.implementations[label] = names;
  }
  limits.progress("");
  return result;
}

}  // namespace parax
