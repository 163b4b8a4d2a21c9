#include <cmath>

#include "parax/base/error.h"
#include "parax/base/log.h"
#include "parax/cli/signals.h"
#include "parax/cli/train_run.h"

namespace parax {

bool TrainRun::IsBetter(double value) const {
  if (!std::isfinite(value)) return false;
  if (!state_.best) return true;
  return setup_.options.best_metric == "loss" ? value < state_.best->value
                                              : value > state_.best->value;
}

EvalReport TrainRun::EvaluateOn(const Split& split, bool averaged) {
  const StopOnSignal stop(trainer_->stop());
  const auto input = EvaluationInput(setup_, split, trainer_->stop());
  EvalReport report = trainer_->Evaluate(
      EvalBatches(split.size(), static_cast<int>(setup_.trainer.seats.size()), setup_.eval_micro),
      *input, averaged);
  if (report.total.count == 0) Fail("none of {} images to evaluate can be decoded", split.size());
  return report;
}

void TrainRun::RunEvaluation() {
  last_eval_ = EvaluateOn(setup_.selection(), setup_.trainer.ema_decay > 0);
  evaluated_ = trainer_->iteration();
  last_eval_time_ = Clock::now();
}

void TrainRun::Evaluate() {
  RunEvaluation();
  const LossResult& total = last_eval_.total;
  if (point_) {
    point_->extra["val_loss"] = total.mean_loss();
    point_->extra["val_accuracy"] = total.accuracy();
    point_->extra["val_top5"] = total.top5();
  }
  const double value = setup_.options.best_metric == "loss" ? total.mean_loss() : total.accuracy();
  improved_ = total.finite && IsBetter(value);
  if (improved_) {
    state_.best = BestRecord{static_cast<int64_t>(evaluated_), setup_.options.best_metric, value};
    state_.evaluations_without_better = 0;
  } else {
    ++state_.evaluations_without_better;
  }
  progress_->Clear();
  Info("step {} (epoch {:.2f}): validation accuracy {:.2f} %, loss {:.4f}{}", evaluated_,
       static_cast<double>(evaluated_) / static_cast<double>(setup_.steps_per_epoch),
       100 * total.accuracy(), total.mean_loss(), improved_ ? " (best so far)" : "");
}

void TrainRun::EvaluateTest() {
  trainer_->Load(LoadModel(used_.parent_path().string()).weights);
  try {
    test_ = EvaluateOn(setup_.dataset.test, /*averaged=*/false).total;
  } catch (const Error& error) {
    Fail("test/ is not measured, the run is complete and saved: {}", error.what());
  }
  if (progress_->ImagesPerSecond() == 0) return;  // a finished run taken up again has told it
  events_->Scalar("test/accuracy", trainer_->iteration(), test_->accuracy());
  events_->Flush();
}

}  // namespace parax
