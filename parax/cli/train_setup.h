#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parax/cli/session.h"
#include "parax/data/pipeline.h"
#include "parax/engine/schedule.h"
#include "parax/engine/tune.h"

namespace parax {

// A training run with every choice made: what the user gave, defaults that depend on machine and
// data, and what follows from them.
struct TrainSetup {
  Options options;  // with the values that were chosen
  Machine machine;
  Dataset dataset;  // empty when synthetic
  bool synthetic = false;
  ModelConfig config;
  Graph graph;
  TrainerOptions trainer;
  TransformOptions transform;  // of training images; unused when synthetic
  uint64_t steps_per_epoch = 1, total_steps = 1;
  uint64_t eval_every = 0, save_every = 0;    // steps; 0: by time, or never
  double eval_seconds = 0, save_seconds = 0;  // > 0: by time
  int64_t eval_micro = 1;
  std::vector<std::string> notes;  // a line each: defaults taken, and why

  const Split& selection() const { return dataset.val; }
};

// "sgd", "adam", "adamw", "lars". Throws UsageError naming the nearest.
OptimizerKind ParseOptimizer(const std::string& name);

// Throws UsageError or Error: one line saying what is wrong and what would be right.
// `resumes`: the options are those of a run that goes on.
TrainSetup ResolveTraining(const Options& options, bool resumes = false);

// Of synthetic data: what `parax plan` and `parax tune` are about, --micro-batch images an
// instance.
TrainSetup ResolveSynthetic(const Options& options);
// What the tuner may choose for these options.
TuneOptions TuningFor(const Options& options);

// Fills in `transform`. Throws UsageError for values that do not fit the image size.
void ResolveTransform(TrainSetup& setup);
std::unique_ptr<InputSource> TrainingInput(const TrainSetup& setup, uint64_t finished_steps,
                                           StopFlag& stop);
std::unique_ptr<InputSource> EvaluationInput(const TrainSetup& setup, const Split& split,
                                             StopFlag& stop);

// Bytes of decoded micro-batches and encoded files that the input pipeline holds.
size_t InputBytes(const TrainSetup& setup);

// Bytes this run will need at its peak, by kind; checked against the memory limit before anything
// is allocated.
struct MemoryEstimate {
  size_t parameters = 0, optimizer = 0, gradients = 0, activations = 0, input = 0, program = 0,
         saving = 0;
  size_t total() const {
    return parameters + optimizer + gradients + activations + input + program + saving;
  }
};
MemoryEstimate EstimateMemory(const TrainSetup& setup);
// Throws Error when it is more than allowed.
MemoryEstimate CheckedMemory(const TrainSetup& setup);

// Makes the trainer use the plan that tuning finds or has found, if it fits into memory; `memory`,
// of the fixed rules, is known to fit and becomes the chosen plan's.
void ChoosePlan(TrainSetup& setup, MemoryEstimate& memory);

}  // namespace parax
