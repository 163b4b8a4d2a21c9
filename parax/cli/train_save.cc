#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "parax/base/error.h"
#include "parax/base/log.h"
#include "parax/cli/train_run.h"

namespace parax {
namespace {

// The name of the first tensor that holds a NaN or infinity, or "".
std::string FirstNonFinite(const TensorMap& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (!std::ranges::all_of(tensor.values, [](float v) { return std::isfinite(v); })) return name;
  }
  return "";
}

}  // namespace

// A checkpoint that a full disk kept from being saved can't be the best one that is there.
void TrainRun::RecordBest() const {
  if (!state_.best) {  // nor one of before, by another metric or of steps to come
    std::filesystem::remove(Checkpoints() / "best.json");
    return;
  }
  const BestRecord& best = *state_.best;
  if (!std::filesystem::exists(Checkpoints() / fmt::format("step-{}", best.step))) return;
  WriteBest(Checkpoints(), best);
}

void TrainRun::Save(bool is_last) {
  state_.step = trainer_->iteration();
  state_.seconds = seconds_before_ + SecondsSince(started_);
  CheckpointContent content;
  content.model = trainer_->Weights();
  content.ema = trainer_->EmaWeights();
  content.optimizer = trainer_->OptimizerStates();
  for (const TensorMap* tensors : {&content.model, &content.ema, &content.optimizer}) {
    const std::string name = FirstNonFinite(*tensors);
    if (name.empty()) continue;
    progress_->Clear();
    Fail("{} is not finite after step {}; the last checkpoint ({}) is untouched", name, state_.step,
         saved_ == 0 ? "none yet" : fmt::format("step {}", saved_));
  }
  content.config_json = ToJson(setup_.config);
  content.state_json = ToJson(state_);
  content.plan_json = trainer_->Record().ToJson();
  last_save_ = Clock::now();
  try {
    const auto step = static_cast<int64_t>(state_.step);
    SaveCheckpoint(Checkpoints(), step, content);
    saved_ = state_.step;
    save_failed_ = false;
  } catch (const Error& error) {
    // The last whole checkpoint is still there. Training is worth more than stopping at once: the
    // disk may have room again at the next save.
    save_failed_ = true;
    progress_->Clear();
    Warn("step {} is not saved: {}{}", state_.step, error.what(),
         is_last ? "" : "; training goes on, the next save will try again");
    return;
  }
  try {
    RecordBest();
    PruneCheckpoints(Checkpoints(), setup_.options.keep, static_cast<int64_t>(saved_));
  } catch (const Error& error) {
    progress_->Clear();
    Warn("step {} is saved, but the list of checkpoints is not up to date: {}", saved_,
         error.what());
  }
}

}  // namespace parax
