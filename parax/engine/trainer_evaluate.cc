#include <algorithm>

#include "parax/base/error.h"
#include "parax/engine/trainer_internal.h"

namespace parax {

EvalReport Trainer::Evaluate(const BatchPlan& plan, InputSource& input, bool use_ema,
                             bool want_logits) {
  if (use_ema) server_->UseEma(true);
  const size_t samples = static_cast<size_t>(plan.samples);
  const size_t classes = static_cast<size_t>(options_.loss.classes);
  EvalReport report;
  report.labels.resize(samples);
  report.predicted.resize(samples);
  report.confidence.resize(samples);
  report.read.resize(samples);
  if (want_logits) report.logits.resize(samples * classes);
  std::vector<LossResult> totals(leaves_.size());
  workers_.Run([&](int leaf) {
    Leaf& self = *leaves_[static_cast<size_t>(leaf)];
    Instance& instance = self.instance;
    const TraceSpan span(self.track, /*training=*/false);
    for (int64_t it = 0; it < plan.IterationsPerEpoch(); ++it) {
      for (int m = 0; m < plan.MicroBatches(it, leaf); ++m) {
        MicroBatch batch;
        TraceTimer timer(self.track);
        if (input.Acquire(leaf, batch) != Outcome::kOk) return;
        timer.Note({.kind = TraceKind::kInputWait});
        const RunContext context{options_.seed, 0, batch.sample_ids};
        const Outcome outcome =
            instance.Evaluate(batch, context, totals[static_cast<size_t>(leaf)]);
        for (int64_t i = 0; i < batch.count && outcome == Outcome::kOk; ++i) {
          // A file that could not be read has sample id -1 - id (PipelineOptions::mark_broken).
          const bool read = batch.sample_ids[i] >= 0;
          const size_t id =
              static_cast<size_t>(read ? batch.sample_ids[i] : -1 - batch.sample_ids[i]);
          report.read[id] = read;
          const float* p = instance.probabilities() + static_cast<size_t>(i) * classes;
          const size_t best = static_cast<size_t>(std::max_element(p, p + classes) - p);
          report.labels[id] = batch.labels[i];
          report.predicted[id] = static_cast<int32_t>(best);
          report.confidence[id] = p[best];
          if (want_logits) {
            std::copy_n(instance.logits() + static_cast<size_t>(i) * classes, classes,
                        report.logits.begin() + static_cast<int64_t>(id * classes));
          }
        }
        input.Release(leaf);
        if (outcome != Outcome::kOk) return;
      }
    }
  });
  if (use_ema) server_->UseEma(false);
  if (stop_.stopped()) {
    Fail("evaluation ended early: {}",
         stop_.outcome() == Outcome::kInputFailed ? input.ErrorLine() : stop_.Reason());
  }
  for (const LossResult& total : totals) report.total += total;
  return report;
}

}  // namespace parax
