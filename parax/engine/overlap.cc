#include "parax/engine/overlap.h"

#include <algorithm>
#include <iterator>

#include "parax/engine/peaks.h"
#include "parax/engine/plan_record.h"
#include "parax/numa/bandwidth.h"

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

OverlapOptions MeasureOverlap(SchedulePolicy policy, int limit, const std::vector<Seat>& seats,
                              const std::vector<int>& domain_nodes) {
  OverlapOptions overlap;
  overlap.policy = policy;
  overlap.gate_limit.assign(domain_nodes.size(), 1);
  if (policy != SchedulePolicy::kGate && policy != SchedulePolicy::kGateDefer) return overlap;
  for (size_t domain = 0; domain < domain_nodes.size(); ++domain) {
    std::vector<Seat> here;
    std::ranges::copy_if(seats, std::back_inserter(here), [&](const Seat& seat) {
      return static_cast<size_t>(seat.domain) == domain;
    });
    if (here.empty()) continue;
    const std::vector<double> bandwidth =
        CopyBandwidth(here, domain_nodes[domain], MachineKey(), BandwidthCachePath());
    overlap.gate_limit[domain] = limit > 0 ? limit : GateLimit(bandwidth);
    overlap.rates.bytes += bandwidth.back() / static_cast<double>(seats.size());
    overlap.rates.bytes_alone = std::max(overlap.rates.bytes_alone, bandwidth.front());
  }
  overlap.rates.flops = MeasureFlops(seats) / static_cast<double>(seats.size());
  return overlap;
}

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
