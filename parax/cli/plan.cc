#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "parax/base/error.h"
#include "parax/base/log.h"
#include "parax/base/text.h"
#include "parax/cli/commands.h"
#include "parax/cli/session.h"
#include "parax/cli/train_setup.h"
#include "parax/engine/plan_record.h"
#include "parax/engine/workers.h"

namespace parax {

int RunPlan(const Options& options) {
  SetQuiet(options.quiet || options.json);
  TrainSetup setup = ResolveSynthetic(options);
  const int64_t micro = *setup.options.bn_group;
  const Machine& machine = setup.machine;
  const std::optional<TunedPlan> tuned =
      options.tune == "off" ? std::nullopt
                            : FindTuned(setup.graph, setup.trainer, TuningFor(options));
  if (tuned) UseTuned(*tuned, setup.trainer);
  const MemoryEstimate memory = EstimateMemory(setup);
  Plan plan;
  Workers worker({setup.trainer.seats[0]});
  worker.Run([&](int) {
    plan = Plan::Build(setup.graph, PlanOptionsFor(setup.trainer, Mode::kTraining, micro));
  });

  const size_t limit = machine.topology.memory_limit_bytes;
  if (options.json) {
    nlohmann::ordered_json ops = nlohmann::json::array();
    for (const PlanOp& op : plan.ops) {
      const OpTraffic traffic = TrafficOf(plan, op);
      ops.push_back({{"name", op.name},
                     {"implementation", op.kernel->implementation()},
                     {"flops", op.flops},
                     {"bytes", traffic.bytes},
                     {"least_bytes", traffic.least}});
    }
    const nlohmann::ordered_json json = {{"model", setup.config.model.name},
                                         {"micro_batch", micro},
                                         {"instances", setup.options.instances},
                                         {"tuned", tuned ? tuned->kind : ""},
                                         {"flops", plan.flops()},
                                         {"arena_bytes", plan.arena_bytes},
                                         {"memory",
                                          {{"parameters", memory.parameters},
                                           {"optimizer", memory.optimizer},
                                           {"gradients", memory.gradients},
                                           {"activations", memory.activations},
                                           {"input", memory.input},
                                           {"program", memory.program},
                                           {"saving", memory.saving},
                                           {"total", memory.total()},
                                           {"limit", limit}}},
                                         {"ops", ops}};
    fmt::print("{}\n", json.dump());
    return 0;
  }
  fmt::print("{}: {}, micro-batch {} ({} images a step)\n", setup.config.model.name,
             MachineLine(machine), micro, *setup.options.batch);
  fmt::print("kernels and layouts: {}\n",
             tuned ? fmt::format("as tuning found them here ({})", tuned->kind)
                   : "by fixed rules (not tuned here yet: parax tune)");
  fmt::print("{}", Describe(plan, options.verbose));
  const auto line = [](const char* name, size_t bytes) {
    fmt::print("  {:<42} {:>9}\n", name, HumanBytes(static_cast<double>(bytes)));
  };
  fmt::print("memory of a training run with {} instance{}\n", setup.options.instances,
             setup.options.instances == 1 ? "" : "s");
  line("parameters and their packed forms", memory.parameters);
  line("optimizer states", memory.optimizer);
  line("gradients", memory.gradients);
  line("activations and scratch", memory.activations);
  line("input", memory.input);
  line("program, libraries, kernels", memory.program);
  line("copies while saving", memory.saving);
  line("together", memory.total());
  fmt::print("{} of {} allowed\n", memory.total() <= limit ? "fits:" : "DOES NOT FIT:",
             HumanBytes(static_cast<double>(limit)));
  return 0;
}

}  // namespace parax
