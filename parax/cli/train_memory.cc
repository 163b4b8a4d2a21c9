#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "parax/cli/train_setup.h"

namespace parax {
namespace {

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
  // The plans themselves tell; kernels made here are found again in oneDNN's cache by the trainer.
  PlanOptions options;
  options.blocked = setup.trainer.blocked;
  options.threads = static_cast<int>(setup.trainer.seats[0].pus.size());
  options.loss = setup.trainer.loss;
  options.batch = MicroBatchSizes(setup.trainer.train).front();
  const size_t before = ResidentBytes();
  const Plan plan = Plan::Build(setup.graph, options);
  MemoryEstimate memory;
  memory.program = std::max(ResidentBytes(), before);

  const size_t leaves = setup.trainer.seats.size();
  const size_t domains = setup.machine.domain_nodes.size();
  size_t trainable = 0, largest = 0;
  for (const PlanParam& param : plan.params) {
    if (!param.trainable) continue;
    trainable += param.grad.bytes();
    largest = std::max(largest, param.grad.bytes());
  }
  size_t forms = 0;
  for (const PlanForm& form : plan.forms) forms += form.layout.bytes();
  const size_t ema = setup.trainer.ema_decay > 0 ? trainable : 0;
  memory.parameters = trainable + ema + forms * domains;
  memory.optimizer = trainable * StateCount(setup.trainer.optimizer);
  memory.gradients = trainable * (leaves + (setup.trainer.policy == UpdatePolicy::kCommit ? 1 : 0));
  memory.activations = (plan.arena_bytes + largest) * leaves;
  memory.input = InputBytes(setup);
  return memory;
}

}  // namespace parax
