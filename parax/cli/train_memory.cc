#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "parax/base/error.h"
#include "parax/base/text.h"
#include "parax/cli/train_setup.h"
#include "parax/engine/workers.h"

namespace parax {
namespace {

// Measured: what grows beyond the plans once a run is under way.
constexpr size_t kRunningBytes = 7 << 20;  // other layouts' kernels that were timed, logs, report
constexpr size_t kThreadBytes = 1 << 20;   // stacks and heaps of an instance and its decoder

// Resident memory of this process now: program, libraries, the data set's index.
size_t ResidentBytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  unsigned long total = 0, resident = 0;
  const int read = std::fscanf(file, "%lu %lu", &total, &resident);
  std::fclose(file);
  return read == 2 ? resident * static_cast<size_t>(sysconf(_SC_PAGESIZE)) : 0;
}

// Elements that an optimizer keeps a parameter, besides master and gradient.
size_t StateCount(const OptimizerOptions& optimizer) { return StateNames(optimizer).size(); }

}  // namespace

MemoryEstimate EstimateMemory(const TrainSetup& setup) {
  // The plans themselves tell. They are made on a seat, as the trainer makes them: scratch memory
  // depends on the number of threads, and kernels made here are found again in oneDNN's cache.
  const size_t before = ResidentBytes();
  Plan plan;
  size_t arena = 0;
  Workers seat({setup.trainer.seats[0]});
  seat.Run([&](int) {
    plan = Plan::Build(setup.graph, PlanOptionsFor(setup.trainer, Mode::kTraining,
                                                   MicroBatchSizes(setup.trainer.train).front()));
  });
  arena = plan.arena_bytes;
  const std::set<int64_t> eval_sizes(setup.trainer.eval_sizes.begin(),
                                     setup.trainer.eval_sizes.end());
  for (const int64_t size : eval_sizes) {
    seat.Run([&](int) {
      const Plan evaluation =
          Plan::Build(setup.graph, PlanOptionsFor(setup.trainer, Mode::kEvaluation, size), &plan);
      arena = std::max(arena, evaluation.arena_bytes);
    });
  }

  const size_t leaves = setup.trainer.seats.size();
  const size_t domains = setup.machine.domain_nodes.size();
  size_t trainable = 0, largest = 0;
  for (const PlanParam& param : plan.params) {
    if (!param.trainable) continue;
    trainable += param.grad.bytes();
    largest = std::max(largest, param.grad.bytes());
  }
  const size_t ema = setup.trainer.ema_decay > 0 ? trainable : 0;
  size_t forms = 0;
  for (const PlanForm& form : plan.forms) {
    const PlanParam& param = plan.params[static_cast<size_t>(form.param)];
    // The gradient server keeps no copy of what the master is already.
    const bool is_master = domains == 1 && ema == 0 && param.trainable && !form.layout.padded() &&
                           form.layout == param.grad;
    if (!is_master) forms += form.layout.bytes();
  }
  MemoryEstimate memory;
  memory.program = std::max(ResidentBytes(), before) + kRunningBytes + leaves * kThreadBytes;
  memory.parameters = trainable + ema + forms * domains;
  memory.optimizer = trainable * StateCount(setup.trainer.optimizer);
  memory.gradients = trainable * (leaves + (setup.trainer.policy == UpdatePolicy::kCommit ? 1 : 0));
  memory.activations = (arena + largest) * leaves;
  memory.input = InputBytes(setup);
  memory.saving = trainable + ema + memory.optimizer;  // copies in the files' order
  return memory;
}

MemoryEstimate CheckedMemory(const TrainSetup& setup) {
  const MemoryEstimate memory = EstimateMemory(setup);
  const size_t limit = setup.machine.topology.memory_limit_bytes;
  if (memory.total() <= limit) return memory;
  Fail(
      "this run needs {} of memory and {} are allowed: use a smaller --batch, or --bn-group (now "
      "{}) so that each instance takes its share in smaller parts",
      HumanBytes(static_cast<double>(memory.total())), HumanBytes(static_cast<double>(limit)),
      *setup.options.bn_group);
}

}  // namespace parax
