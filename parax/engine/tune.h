#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "parax/engine/trainer.h"
#include "parax/engine/tune_cache.h"

namespace parax {

// Told what is being timed, such as "layer 3 of 108"; "" before a result is logged.
using TuneProgress = std::function<void(const std::string& what)>;

struct TuneOptions {
  bool nhwc = true, blocked = true;  // layouts that may be chosen; at least one
  std::filesystem::path cache;       // of TuneCache; "": none
  TuneProgress progress = [](const std::string&) {};
};

// A line of what was chosen, for tables.
struct TunedOp {
  std::string layer, pass, layout;  // pass: such as "backward data"; layout: of the output
  std::string implementation, runner_up;
  double seconds = 0, runner_up_seconds = 0;  // a micro-batch, within steps; 0: no other
  double flops = 0;
};

struct TuneResult {
  TunedPlan plan;
  double seconds = 0;  // of all layers of a micro-batch, as they were timed in steps
  std::vector<TunedOp> ops;
};

// Finds layouts and kernels for training `graph` here: times every candidate of every distinct
// layer with all instances running, searches the best combination (layout_search.h), and takes it
// or one layout everywhere, whichever makes the fastest steps. Of that plan it then times the
// kernels that are near the best within whole steps, and takes the fastest of each op. Results are
// the same mathematics, but not the same bits. `options`: of the run that will use it; its layouts
// and plan are not looked at. Throws Error when a step fails.
TuneResult Tune(const Graph& graph, const TrainerOptions& options, const TuneOptions& tune);

// What Tune found earlier for this network, micro-batch and machine, if the cache has it.
std::optional<TunedPlan> FindTuned(const Graph& graph, const TrainerOptions& options,
                                   const TuneOptions& tune);

// Makes a trainer with these options use the plan.
void UseTuned(const TunedPlan& plan, TrainerOptions& options);

}  // namespace parax
