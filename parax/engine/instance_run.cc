#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "parax/engine/instance.h"

namespace parax {

void Instance::Note(Pass& pass, TraceKind kind, int index, uint64_t least) {
  pass.timer.Note({0, 0, pass.context.iteration, pass.plan, static_cast<uint16_t>(index), kind},
                  least);
}

Outcome Instance::RunOps(BoundPlan& bound, int begin, int end, const RunContext& context, int micro,
                         bool last) {
  Pass pass{bound,
            context,
            micro,
            last,
            TraceTimer(wiring_.track),
            static_cast<uint16_t>(&bound - plans_.data())};
  deferred_.clear();
  if (wiring_.spare_crowded) wiring_.scheduler->Lost(wiring_.leaf, loss_.Part());
  Outcome outcome = Outcome::kOk;
  for (int i = begin; i < end; ++i) {
    if (wiring_.stop->stopped()) return Outcome::kStopped;
    if ((outcome = Prepared(pass, i)) != Outcome::kOk) return outcome;
    if ((outcome = RunDue(pass, i)) != Outcome::kOk) return outcome;
    if ((outcome = Schedule(pass, i)) != Outcome::kOk) return outcome;
    if ((outcome = CheckDying(pass, i)) != Outcome::kOk) return outcome;
    if (wiring_.server == nullptr) continue;
    outcome = wiring_.server->Help(wiring_.leaf);
    Note(pass, TraceKind::kServerWork, 0);
    if (outcome != Outcome::kOk) return outcome;
  }
  return Outcome::kOk;
}

Outcome Instance::Prepared(Pass& pass, int op) {
  Outcome outcome = Outcome::kOk;
  if (wiring_.hook != nullptr) {
    outcome = wiring_.hook->Enter(wiring_.leaf, pass.context.iteration, op);
    if (outcome != Outcome::kOk) return outcome;
    pass.timer.Start();
  }
  if (wiring_.scheduler != nullptr && wiring_.scheduler->staggers()) {
    outcome = wiring_.scheduler->Stagger(wiring_.leaf, op, static_cast<int>(pass.bound.ops.size()));
    Note(pass, TraceKind::kGateWait, op);
    if (outcome != Outcome::kOk) return outcome;
  }
  // Before there may be a place at the gate: who holds one waits for nobody.
  for (const int bucket : pass.bound.ops[static_cast<size_t>(op)].await) {
    outcome = wiring_.server->AwaitBucket(wiring_.leaf, bucket);
    Note(pass, TraceKind::kBucketWait, bucket);
    if (outcome != Outcome::kOk) return outcome;
  }
  return outcome;
}

Outcome Instance::Schedule(Pass& pass, int op) {
  if (wiring_.scheduler == nullptr) return RunOp(pass, op);
  NextOp next = pass.bound.ops[static_cast<size_t>(op)].next;
  for (;;) {
    next.deferred = !deferred_.empty();
    Outcome outcome = Outcome::kOk;
    switch (wiring_.scheduler->Next(wiring_.leaf, next)) {
      case Action::kRun: {
        const bool placed = next.phase == Phase::kAccessIntensive;
        const GatePlace place(placed ? wiring_.scheduler : nullptr, wiring_.leaf);
        if (placed) {
          // The trace shows the op, not its wait for the place. Without the fence the processor may
          // read the counter before the place is there: ops would seem to overlap.
          _mm_lfence();
          pass.timer.Start();
        }
        return RunOp(pass, op);
      }
      case Action::kDefer:
        deferred_.push_back(op);
        return Outcome::kOk;
      case Action::kRunDeferred: {
        const auto sooner = [&](int a, int b) {
          return pass.bound.ops[static_cast<size_t>(a)].latest <
                 pass.bound.ops[static_cast<size_t>(b)].latest;
        };
        const auto soonest = std::ranges::min_element(deferred_, sooner);
        outcome = RunDeferred(pass, static_cast<size_t>(soonest - deferred_.begin()));
        break;
      }
      case Action::kWait:
        outcome = wiring_.scheduler->AwaitRoom(wiring_.leaf);
        Note(pass, TraceKind::kGateWait, op, 0);
        break;
    }
    if (outcome != Outcome::kOk) return outcome;
  }
}

Outcome Instance::RunDeferred(Pass& pass, size_t which) {
  const int op = deferred_[which];
  deferred_.erase(deferred_.begin() + static_cast<std::ptrdiff_t>(which));
  return RunOp(pass, op);
}

Outcome Instance::RunDue(Pass& pass, int op) {
  for (size_t d = 0; d < deferred_.size();) {
    if (pass.bound.ops[static_cast<size_t>(deferred_[d])].latest > op) {
      ++d;
      continue;
    }
    const Outcome outcome = RunDeferred(pass, d);
    if (outcome != Outcome::kOk) return outcome;
  }
  return Outcome::kOk;
}

Outcome Instance::RunOp(Pass& pass, int index) {
  BoundOp& op = pass.bound.ops[static_cast<size_t>(index)];
  const bool add = pass.micro > 0 && op.later != nullptr;
  Outcome outcome = (add ? op.later : op.first)->Run(pass.context);
  if (add) {
    for (auto& adding : op.added) {
      if (outcome == Outcome::kOk) outcome = adding->Run(pass.context);
    }
  }
  Note(pass, TraceKind::kOp, index, 0);
  if (outcome != Outcome::kOk) {
    wiring_.stop->Fail(outcome, "layer op", index);
    return outcome;
  }
  if (!pass.last) return Outcome::kOk;
  for (const int bucket : op.uses) {
    if (--open_[static_cast<size_t>(bucket)] == 0) wiring_.server->Publish(wiring_.leaf, bucket);
  }
  return Outcome::kOk;
}

Outcome Instance::CheckDying(Pass& pass, int op) {
  for (const auto& [offset, bytes] : pass.bound.ops[static_cast<size_t>(op)].dying) {
    if (!GuardIntact(offset + bytes)) {
      wiring_.stop->Fail(Outcome::kKernelFailed, "write past the end of a buffer by op", op);
      return Outcome::kKernelFailed;
    }
    // Results stay.
    if (op + 1 < static_cast<int>(pass.bound.ops.size())) FillDead(offset, bytes);
  }
  return Outcome::kOk;
}

void Instance::CopyMoments(const Plan& plan, int micro) {
  for (const PlanMoment& moment : plan.moments) {
    const int m = wiring_.store->ServerMoment(moment.node);
    const size_t bytes = static_cast<size_t>(moment.channels) * sizeof(float);
    std::memcpy(wiring_.server->moment_mean(wiring_.leaf, m, micro), At<float>(moment.mean, plan),
                bytes);
    std::memcpy(wiring_.server->moment_variance(wiring_.leaf, m, micro),
                At<float>(moment.variance, plan), bytes);
    wiring_.server->SetMomentCount(wiring_.leaf, m, micro, moment.count);
  }
}

Outcome Instance::Train(const MicroBatch& batch, const RunContext& context, int micro,
                        int micro_batches, LossResult& total) {
  BoundPlan* bound = Begin(Mode::kTraining, batch);
  if (bound == nullptr) return Outcome::kKernelFailed;
  const Plan& plan = *bound->plan;
  const bool last = micro + 1 == micro_batches;
  if (last) open_ = bound->uses;  // as long: allocates nothing
  Outcome outcome = RunOps(*bound, 0, plan.forward_ops, context, micro, last);
  if (outcome != Outcome::kOk) return outcome;
  const LossResult result = *At<LossResult>(plan.loss, plan);
  total += result;
  // The trainer looks for the layer, then stops the run.
  if (!result.finite) return Outcome::kNotFinite;
  CopyMoments(plan, micro);
  wiring_.server->SetWeight(wiring_.leaf, total.weight_sum);
  return RunOps(*bound, plan.forward_ops, static_cast<int>(plan.ops.size()), context, micro, last);
}

void Instance::PublishNothing() {
  for (int b = 0; b < wiring_.server->buckets(); ++b) wiring_.server->Publish(wiring_.leaf, b);
}

Outcome Instance::Evaluate(const MicroBatch& batch, const RunContext& context, LossResult& total) {
  BoundPlan* bound = Begin(Mode::kEvaluation, batch);
  if (bound == nullptr) return Outcome::kKernelFailed;
  const Plan& plan = *bound->plan;
  const Outcome outcome =
      RunOps(*bound, 0, static_cast<int>(plan.ops.size()), context, 0, /*last=*/false);
  if (outcome != Outcome::kOk) return outcome;
  const LossResult result = *At<LossResult>(plan.loss, plan);
  total += result;
  logits_ = At<float>(plan.logits, plan);
  probabilities_ = At<float>(plan.probabilities, plan);
  return Outcome::kOk;
}

}  // namespace parax
