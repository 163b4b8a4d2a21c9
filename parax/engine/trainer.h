#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "parax/base/stop.h"
#include "parax/data/input.h"
#include "parax/data/sampler.h"
#include "parax/engine/graph.h"
#include "parax/engine/instance.h"
#include "parax/engine/overlap.h"
#include "parax/engine/param_store.h"
#include "parax/engine/plan_record.h"
#include "parax/engine/workers.h"
#include "parax/sched/trace.h"

namespace parax {

struct TrainerOptions {
  std::vector<Seat> seats;          // one a leaf
  std::vector<int> domain_nodes;    // OS NUMA node of each domain (-1: do not bind)
  bool training = true;             // false: evaluation only, no gradient server
  BatchPlan train;                  // leaves == seats.size(); ignored without training
  std::vector<int64_t> eval_sizes;  // every micro-batch size evaluation will meet
  LossOptions loss;                 // of training; evaluation uses plain cross-entropy
  OptimizerOptions optimizer;
  UpdatePolicy policy = UpdatePolicy::kCommit;
  double clip_norm = 0;
  double ema_decay = 0;
  int reduce_group = 4;
  bool blocked = false;  // layers that `layouts` does not name
  LayerLayouts layouts;
  Precision precision;
  bool winograd = true;  // prefer Winograd convolutions where they pay
  bool guards = false;   // canaries and dead-buffer filling in the arena (debugging)
  PlanRecord plan;       // of an earlier run: kernels are chosen as there
  uint64_t seed = 0;
  std::function<double(uint64_t iteration)> learning_rate;  // pure, does not allocate
  OverlapOptions overlap;
  OpHook* hook = nullptr;
  Trace* trace = nullptr;             // gets a track an instance; outlives the trainer
  std::shared_ptr<ArenaPool> memory;  // the instances' memory is taken from here; null: allocated
};

// How a trainer with these options builds its plan for `batch` images.
PlanOptions PlanOptionsFor(const TrainerOptions& options, Mode mode, int64_t batch);

// One finished iteration.
struct StepReport {
  uint64_t iteration = 0;
  LossResult loss;  // summed over leaves, in leaf order
  double learning_rate = 0;
  double gradient_norm = 0;
};

struct EvalReport {
  LossResult total;
  // One a sample, by sample id.
  std::vector<int32_t> labels;  // -1: none, or the file could not be read
  std::vector<int32_t> predicted;
  std::vector<float> confidence;  // probability of the predicted class
  std::vector<float> logits;      // samples x classes, when asked for
  std::vector<uint8_t> read;      // 0: the file could not be read, and counts nowhere
};

// Why training came to an end before its last iteration.
struct TrainEnd {
  uint64_t iteration = 0;  // the last one completed
  Outcome outcome = Outcome::kOk;
  std::string reason;  // one line, empty when ok or stopped by request
};

// Trains and evaluates one network with one instance a seat. Owns threads, plans, parameters and
// the gradient server. Setup code calls it from one thread.
class Trainer {
 public:
  Trainer(const Graph& graph, TrainerOptions options);
  ~Trainer();

  void Load(const TensorMap& tensors);  // parameters and running statistics
  // Continues after `iteration` finished iterations, with what a checkpoint held.
  void Resume(uint64_t iteration, const TensorMap& optimizer, const TensorMap& ema);
  TensorMap Weights() const;
  TensorMap EmaWeights() const;
  TensorMap OptimizerStates() const;

  // Runs iterations up to and including `last`, reporting each in order on the calling thread.
  // `interrupted` is asked between reports; once true, all leaves stop after the same iteration.
  // Updates of all completed iterations are in when it returns.
  TrainEnd Train(uint64_t last, InputSource& input,
                 const std::function<void(const StepReport&)>& report,
                 const std::function<bool()>& interrupted);
  // One pass over `plan.samples` samples. `use_ema`: with the averaged weights.
  EvalReport Evaluate(const BatchPlan& plan, InputSource& input, bool use_ema,
                      bool want_logits = false);

  uint64_t iteration() const { return iteration_; }
  StopFlag& stop() { return stop_; }
  const std::vector<std::unique_ptr<Plan>>& plans() const { return plans_; }  // training first
  PlanRecord Record() const;  // the resolved plans, for run folder and checkpoints
  bool threads_bound() const { return workers_.bound(); }

  PageKind pages() const;  // of the instances' arenas

 private:
  struct Leaf;  // what one leaf's thread writes
  void BuildPlans(const Graph& graph);
  Outcome RunIteration(int leaf, uint64_t iteration, InputSource& input);
  void TrainLeaf(int leaf, uint64_t first, InputSource& input);
  // Nothing: stopped before the iteration's update was decided.
  std::optional<StepReport> Collect(uint64_t iteration) const;

  TrainerOptions options_;
  StopFlag stop_;
  Workers workers_;
  std::vector<std::unique_ptr<Plan>> plans_;
  std::unique_ptr<ParamStore> store_;
  std::unique_ptr<Overlap> overlap_;  // null: instances run as they come
  std::unique_ptr<GradientServer> server_;
  std::vector<std::unique_ptr<Leaf>> leaves_;
  uint64_t iteration_ = 0;
  Sequence granted_;                  // leaves may run iterations up to this
  std::atomic<uint64_t> end_at_{0};   // and none beyond this
  std::vector<std::string> trained_;  // names of the gradient server's parameters
  std::mutex failure_mutex_;
  std::string failure_;  // written by the first leaf whose loss was not finite
};

}  // namespace parax
