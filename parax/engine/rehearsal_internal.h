#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "parax/engine/trainer.h"

namespace parax {

// Training on random images for the sake of its times: weights stay as they are initialised.
class Rehearsal {
 public:
  // `events_a_track`: that the trace keeps beside its sums.
  Rehearsal(const Graph& graph, TrainerOptions options, size_t events_a_track);
  // As Trainer::Train; throws Error when a step fails.
  void Train(uint64_t last, const std::function<void(const StepReport&)>& report,
             const std::function<bool()>& interrupted);
  // A run of each op of the training plan, the mean since the trace's sums were cleared; 0: none.
  std::vector<double> OpSeconds() const;
  Trace& trace() { return trace_; }
  const Trainer& trainer() const { return *trainer_; }

 private:
  Trace trace_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<InputSource> input_;
};

}  // namespace parax
