#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "parax/base/stop.h"
#include "parax/engine/tune.h"

// Kernels timed where they will run: in whole training steps, with all instances at work and the
// caches as the other layers leave them.
namespace parax {

// A kernel that may prove the fastest for an op.
struct Contender {
  std::string implementation;
  Layout form;              // packed weights it reads; empty: none
  double form_seconds = 0;  // that writing them costs a step
};

// A layer in the layouts of a plan.
struct ContendingLayer {
  std::string key;  // layers of one key have the same contenders and times
  struct Op {
    TunedOp line;                       // pass, layout and FLOPs
    std::vector<Contender> contenders;  // the plan's own first
  };
  std::vector<Op> ops;  // forward, then backward
};

struct StepTimes {
  double seconds = INFINITY;  // a step: the mean
  // Mean seconds of each op that belongs to a node, by node.
  std::vector<std::vector<double>> ops;
};

struct TuneLimits {
  TuneProgress progress;
  Clock::time_point enough;  // no close call is timed once more after this
  bool Passed() const { return Clock::now() >= enough; }
};

// Trains some steps on synthetic images.
StepTimes TimeSteps(const Graph& graph, const TrainerOptions& options, const TunedPlan& plan);

// The fastest by whole steps, timed in turn. Ties go to the first. `times` gets each one's least
// seconds and its ops' last ones; those it holds already are not timed again but in a close call.
TunedPlan Fastest(const Graph& graph, const TrainerOptions& options,
                  const std::vector<TunedPlan>& plans, const TuneLimits& limits,
                  std::vector<StepTimes>& times);

// The plan itself, told in lines with `times`, and with what `layers` (a node each) say of its ops.
TuneResult Describe(const Graph& graph, const TunedPlan& plan, const StepTimes& times,
                    const std::vector<ContendingLayer>& layers);

// The plan with each op's fastest contender: of steps in which all ops take their second one, their
// third one, and so on, beside `times`, the plan's own. Its layouts stay. `layers`: a node each.
TuneResult Refine(const Graph& graph, const TrainerOptions& options, const TunedPlan& plan,
                  const StepTimes& times, const std::vector<ContendingLayer>& layers,
                  const TuneLimits& limits);

}  // namespace parax
