#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "parax/base/error.h"
#include "parax/base/text.h"
#include "parax/cli/train_setup_internal.h"

namespace parax {
namespace {

// Peak learning rates that work without tuning: the usual ones at a batch of 256, scaled with the
// square root of the batch (Krizhevsky 2014), which is the safer rule at both ends.
double DefaultLearningRate(OptimizerKind kind, int64_t batch) {
  const double scale = std::sqrt(static_cast<double>(batch) / 256);
  switch (kind) {
    case OptimizerKind::kSgd:
      return 0.1 * scale;
    case OptimizerKind::kLars:
      return 2.0 * scale;
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      return 1e-3 * scale;
  }
  return 0.1 * scale;
}

}  // namespace

OptimizerKind ParseOptimizer(const std::string& name) {
  static const std::vector<std::string> kNames = {"sgd", "adam", "adamw", "lars"};
  const auto it = std::find(kNames.begin(), kNames.end(), name);
  if (it == kNames.end()) {
    const std::string nearest = Nearest(name, kNames);
    FailUsage("unknown optimizer '{}'{}; known: sgd, adam, adamw, lars", name,
              nearest.empty() ? "" : fmt::format(": did you mean '{}'?", nearest));
  }
  return static_cast<OptimizerKind>(it - kNames.begin());
}

uint64_t ToSteps(const Span& span, const TrainSetup& setup) {
  switch (span.unit) {
    case Span::Unit::kSteps:
      return static_cast<uint64_t>(std::llround(span.value));
    case Span::Unit::kEpochs:
      return static_cast<uint64_t>(
          std::llround(span.value * static_cast<double>(setup.steps_per_epoch)));
    case Span::Unit::kPercent:
      return static_cast<uint64_t>(
          std::llround(span.value / 100 * static_cast<double>(setup.total_steps)));
    case Span::Unit::kSeconds:
      break;
  }
  return 0;
}

void ResolveOptimizer(TrainSetup& setup) {
  Options& o = setup.options;
  OptimizerOptions& optimizer = setup.trainer.optimizer;
  optimizer.kind = ParseOptimizer(o.optimizer);
  optimizer.momentum = o.momentum;
  optimizer.nesterov = o.nesterov;
  optimizer.beta1 = o.beta1;
  optimizer.beta2 = o.beta2;
  optimizer.epsilon = o.epsilon;
  optimizer.trust = o.trust;
  if (!o.weight_decay) {
    o.weight_decay = optimizer.kind == OptimizerKind::kAdamW ? 0.05 : 1e-4;
  }
  optimizer.weight_decay = *o.weight_decay;
  if (!o.lr) {
    o.lr = DefaultLearningRate(optimizer.kind, *o.batch);
    setup.notes.push_back(
        fmt::format("--lr {:g} (default for {} at batch {})", *o.lr, o.optimizer, *o.batch));
  }
  setup.trainer.clip_norm = o.clip_norm;
  setup.trainer.ema_decay = o.ema;
  if (o.update_policy == "eager") setup.trainer.policy = UpdatePolicy::kEager;
  ScheduleOptions schedule;
  schedule.kind = ParseSchedule(o.lr_schedule);
  schedule.peak = *o.lr;
  schedule.iterations = setup.total_steps;
  if (!o.warmup) {  // one-cycle: as its authors have it
    o.warmup = Span{o.lr_schedule == "onecycle" ? 30.0 : 5.0, Span::Unit::kPercent};
  }
  schedule.warmup = std::min(ToSteps(*o.warmup, setup), setup.total_steps);
  if (schedule.warmup == setup.total_steps) {
    setup.notes.push_back("--warmup is as long as the run: the peak rate comes only at its end");
  }
  schedule.final_factor = o.lr_final;
  schedule.gamma = o.lr_gamma;
  for (const double epoch : o.lr_steps) {
    schedule.milestones.push_back(
        static_cast<uint64_t>(std::llround(epoch * static_cast<double>(setup.steps_per_epoch))));
  }
  setup.trainer.learning_rate = [schedule](uint64_t t) { return LearningRate(schedule, t); };
}

}  // namespace parax
