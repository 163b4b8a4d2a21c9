#include "parax/engine/overlap.h"

namespace parax {
namespace {

SchedulerOptions Describe(const OverlapOptions& options, const std::vector<Seat>& seats) {
  SchedulerOptions scheduler;
  scheduler.policy = options.policy;
  scheduler.limit = options.gate_limit;
  for (const Seat& seat : seats) scheduler.leaf_domain.push_back(seat.domain);
  return scheduler;
}

}  // namespace

std::vector<NextOp> SchedulerOps(const Plan& plan, const SeatRates& rates) {
  std::vector<NextOp> ops;
  for (const PlanOp& op : plan.ops) {
    const Phase phase = PhaseOf({.flops = op.flops, .bytes = op.bytes}, rates);
    ops.push_back({.phase = phase, .deferrable = op.latest >= 0 && phase == Phase::kComputeBound});
  }
  return ops;
}

Overlap::Overlap(const OverlapOptions& options, const std::vector<Seat>& seats, StopFlag& stop)
    : leaves_(static_cast<int>(seats.size())), scheduler_(Describe(options, seats), stop) {}

bool Overlap::gated() const {
  for (int leaf = 0; leaf < leaves_; ++leaf) {
    if (scheduler_.gated(leaf)) return true;
  }
  return false;
}

bool DefersOps(const OverlapOptions& options, const std::vector<Seat>& seats) {
  StopFlag unused;
  return options.policy == SchedulePolicy::kGateDefer && Overlap(options, seats, unused).gated();
}

std::unique_ptr<Overlap> MakeOverlap(const OverlapOptions& options, const std::vector<Seat>& seats,
                                     StopFlag& stop) {
  auto overlap = std::make_unique<Overlap>(options, seats, stop);
  if (options.policy != SchedulePolicy::kStagger && !overlap->gated()) return nullptr;
  return overlap;
}

}  // namespace parax
