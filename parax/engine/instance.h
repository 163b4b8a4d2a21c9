#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parax/base/core_loss.h"
#include "parax/data/input.h"
#include "parax/engine/param_store.h"
#include "parax/engine/plan.h"
#include "parax/gradserver/server.h"
#include "parax/numa/arena_pool.h"
#include "parax/sched/hook.h"
#include "parax/sched/scheduler.h"
#include "parax/sched/trace.h"

namespace parax {

// One leaf: takes micro-batches through the network on its own seat, in its own arena. Everything
// but the constructor and Prepare is hot code, called by the leaf's thread.
class Instance {
 public:
  struct Wiring {
    int leaf = 0;
    int domain = 0;               // whose packed forms it reads
    int os_node = -1;             // where its arena lies
    ArenaPool* memory = nullptr;  // where its arena comes from; may be null
    ParamStore* store = nullptr;
    GradientServer* server = nullptr;  // null: inference only
    StopFlag* stop = nullptr;
    OpHook* hook = nullptr;          // may be null
    Scheduler* scheduler = nullptr;  // may be null
    bool spare_crowded = false;      // the scheduler is told what part of its time the leaf lost
    SeatRates rates;                 // for the scheduler
    TraceTrack* track = nullptr;     // may be null; its trace knows the plans in Prepare's order
  };

  explicit Instance(const Wiring& wiring) : wiring_(wiring) {}
  ~Instance();

  // Allocates the arena and binds the kernels of all plans the instance will run. Setup code; call
  // on the leaf's thread, so that the memory is touched where it is used.
  void Prepare(std::vector<const Plan*> plans);

  // Forward and backward of micro-batch `micro` of `micro_batches`; gradients go to the server, and
  // after the last one the buckets are published. Adds to `total`.
  Outcome Train(const MicroBatch& batch, const RunContext& context, int micro, int micro_batches,
                LossResult& total);
  // Publishes an iteration in which this leaf had no samples.
  void PublishNothing();
  // Forward only; logits() and probabilities() hold the results until the next call.
  Outcome Evaluate(const MicroBatch& batch, const RunContext& context, LossResult& total);

  const float* logits() const { return logits_; }                // count x classes
  const float* probabilities() const { return probabilities_; }  // count x classes

  // After kNotFinite from the loss: the first layer whose output is not finite. Setup code.
  std::string FirstNonFinite(const RunContext& context);

  PageKind pages() const { return arena_.pages(); }

 private:
  struct BoundOp {
    std::unique_ptr<BoundKernel> first;               // writes gradients to the server's slots
    std::unique_ptr<BoundKernel> later;               // writes them to scratch ...
    std::vector<std::unique_ptr<BoundKernel>> added;  // ... from which these add them
    std::vector<int> await;                           // buckets to wait for before the op
    std::vector<int> uses;                            // buckets that it reads or writes
    std::vector<std::pair<size_t, size_t>> dying;     // arena ranges dead after it (debugging)
    NextOp next;                                      // as the scheduler sees it
    int latest = 0;                                   // op before which it must have run
  };
  struct BoundPlan {
    const Plan* plan = nullptr;
    std::vector<BoundOp> ops;
    std::vector<int> uses;  // a bucket: ops that use it
  };
  // What RunOps is about.
  struct Pass {
    BoundPlan& bound;
    const RunContext& context;
    int micro;
    bool last;  // of the iteration's micro-batches
    TraceTimer timer;
    uint16_t plan;
  };

  BoundPlan Bind(const Plan& plan);
  void* Address(const Plan& plan, const PlanArgument& argument, float* gradient);
  void FindBuckets(BoundPlan& bound) const;
  // The plan for this micro-batch, with its input copied in; null (and the stop flag set): none
  // fits.
  BoundPlan* Begin(Mode mode, const MicroBatch& batch);
  void CopyInput(const Plan& plan, const MicroBatch& batch);
  Outcome RunOps(BoundPlan& bound, int begin, int end, const RunContext& context, int micro,
                 bool last);
  void Note(Pass& pass, TraceKind kind, int index, uint64_t least = TraceTimer::kLeastCycles);
  Outcome Prepared(Pass& pass, int op);  // hook, staggered start and buckets
  // Runs or defers the op, as the scheduler decides.
  Outcome Schedule(Pass& pass, int op);
  Outcome RunOp(Pass& pass, int op);
  Outcome RunDeferred(Pass& pass, size_t which);  // in deferred_
  Outcome RunDue(Pass& pass, int op);             // deferred ops that must have run before this one
  Outcome CheckDying(Pass& pass, int op);
  // Debugging plans: what is dead, and the guard behind every buffer, holds signalling NaN.
  void FillDead(size_t offset, size_t bytes);
  bool GuardIntact(size_t end) const;
  void CopyMoments(const Plan& plan, int micro);
  template <typename T>
  T* At(int buffer, const Plan& plan) const {
    return reinterpret_cast<T*>(arena_.data() + plan.buffers[static_cast<size_t>(buffer)].offset);
  }

  Wiring wiring_;
  CoreLoss loss_{std::chrono::milliseconds(100)};  // many time slices
  Arena arena_;
  size_t gradient_scratch_ = 0;  // offset in the arena
  std::vector<BoundPlan> plans_;
  const float* logits_ = nullptr;
  const float* probabilities_ = nullptr;
  const BoundPlan* last_ = nullptr;
  std::vector<int> deferred_;  // ops of the pass that are to run yet; never grows in a pass
  std::vector<int> open_;      // a bucket: ops of the iteration's last pass that use it and have
                               // not run yet
};

}  // namespace parax
