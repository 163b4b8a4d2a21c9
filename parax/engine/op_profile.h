#pragma once

#include <vector>

#include "parax/engine/trainer.h"

namespace parax {

// Seconds with one instance at work, and with one on every seat that do the same at the same time.
struct BusyTimes {
  double alone = 0, together = 0;
};

// What the parts of training cost here, averages over a few iterations.
struct OpProfile {
  std::vector<BusyTimes> ops;  // a run of each op of the training plan
  // In the gradient server's slices, an iteration, summed over instances.
  BusyTimes slices;
  double between = 0;  // a pass: input, and what lies between ops
  double jitter = 0;   // standard deviation of an op's time over its mean
};

// Trains the network here on random images: one instance on the first seat, then all seats in
// lockstep, op by op. `options`: of a run on all seats, with full micro-batches; its overlap and
// hook are not looked at. Each of both takes `seconds`, but three steps at least. Setup code;
// throws Error when a step fails.
OpProfile MeasureOps(const Graph& graph, const TrainerOptions& options, double seconds);

}  // namespace parax
