#include <fmt/core.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "parax/base/error.h"
#include "parax/base/log.h"
#include "parax/base/text.h"
#include "parax/cli/commands.h"
#include "parax/cli/train_setup.h"

namespace parax {

namespace {

// Leaves blocked layouts out where there is no memory to time them.
void FitTuning(TrainSetup& setup, TuneOptions& tune) {
  if (!tune.nhwc || !tune.blocked) return;
  const bool blocked = std::exchange(setup.trainer.blocked, true);
  const size_t needed = EstimateMemory(setup).total();
  setup.trainer.blocked = blocked;
  if (needed <= setup.machine.topology.memory_limit_bytes) return;
  tune.blocked = false;
  Info("blocked layouts are left out: they would need {}", HumanBytes(static_cast<double>(needed)));
}

}  // namespace

TuneOptions TuningFor(const Options& options) {
  TuneOptions tune;
  tune.nhwc = options.layout != "blocked";
  tune.blocked = options.layout != "nhwc";
  tune.cache = TuneCachePath();
  const bool shown = !options.quiet && !options.json && isatty(STDERR_FILENO) != 0;
  if (shown) {
    tune.progress = [](const std::string& what) {
      fmt::print(stderr, "\r\x1b[K{}{}\r", what.empty() ? "" : "tuning: ", what);
      std::fflush(stderr);
    };
  }
  return tune;
}

void ChoosePlan(TrainSetup& setup, MemoryEstimate& memory) {
  const size_t limit = setup.machine.topology.memory_limit_bytes;
  const TrainerOptions fixed = setup.trainer;
  TuneOptions tune = TuningFor(setup.options);
  std::optional<TunedPlan> plan = FindTuned(setup.graph, fixed, tune);
  if (!plan) {
    FitTuning(setup, tune);
    if (!tune.blocked) plan = FindTuned(setup.graph, fixed, tune);
  }
  if (!plan) {
    Info("timing kernels and layouts, once for this network, micro-batch and machine ...");
    plan = Tune(setup.graph, fixed, tune).plan;
  }
  if (plan->implementations.empty() && plan->blocked == fixed.blocked) return;  // the fixed rules
  UseTuned(*plan, setup.trainer);
  MemoryEstimate needed = EstimateMemory(setup);
  needed.program = memory.program;  // now the instances' memory is resident, which counts elsewhere
  if (needed.total() <= limit) {
    memory = needed;
    return;
  }
  Info("the tuned plan is not taken: it would need {}",
       HumanBytes(static_cast<double>(needed.total())));
  setup.trainer = fixed;
}

TrainSetup ResolveSynthetic(const Options& options) {
  if (options.model.empty()) FailUsage("--model is missing, such as --model resnet50");
  // The same road as training takes, up to where it would allocate.
  Options train = options;
  train.data = "synthetic";
  train.bn_group = options.micro_batch.value_or(16);
  train.instances = static_cast<int>(PlanMachine(options).plan.seats.size());
  train.batch = *train.bn_group * train.instances;
  train.epochs = 1;
  return ResolveTraining(train);
}

int RunTune(const Options& options) {
  SetQuiet(options.quiet || options.json);
  TrainSetup setup = ResolveSynthetic(options);
  (void)CheckedMemory(setup);
  TuneOptions tune = TuningFor(options);
  FitTuning(setup, tune);
  const TuneResult result = Tune(setup.graph, setup.trainer, tune);
  if (options.json) {
    nlohmann::ordered_json ops = nlohmann::json::array();
    for (const TunedOp& op : result.ops) {
      ops.push_back({{"layer", op.layer},
                     {"pass", op.pass},
                     {"layout", op.layout},
                     {"implementation", op.implementation},
                     {"seconds", op.seconds},
                     {"flops", op.flops},
                     {"runner_up", op.runner_up},
                     {"runner_up_seconds", op.runner_up_seconds}});
    }
    const nlohmann::ordered_json json = {{"model", setup.config.model.name},
                                         {"micro_batch", *setup.options.bn_group},
                                         {"instances", setup.options.instances},
                                         {"plan", result.plan.kind},
                                         {"seconds", result.seconds},
                                         {"ops", ops}};
    fmt::print("{}\n", json.dump());
    return 0;
  }
  fmt::print("{:<24} {:<16} {:<30} {:<30} {:>9} {:>7}  {}\n", "layer", "pass", "implementation",
             "layout", "ms", "GF/s", "runner-up");
  for (const TunedOp& op : result.ops) {
    const std::string second =
        op.runner_up.empty() ? ""
                             : fmt::format("{} {:.3f}", op.runner_up, 1e3 * op.runner_up_seconds);
    fmt::print("{:<24} {:<16} {:<30} {:<30} {:>9.3f} {:>7.1f}  {}\n", op.layer, op.pass,
               op.implementation, op.layout, 1e3 * op.seconds, op.flops / op.seconds / 1e9, second);
  }
  fmt::print("all layers of a micro-batch: {:.1f} ms; plan taken: {}\n", 1e3 * result.seconds,
             result.plan.kind);
  return 0;
}

}  // namespace parax
