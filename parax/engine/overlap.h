#pragma once

#include <memory>
#include <vector>

#include "parax/engine/plan.h"
#include "parax/gradserver/server.h"
#include "parax/numa/seat.h"
#include "parax/sched/scheduler.h"

namespace parax {

// How a trainer's instances share memory bandwidth. Nothing here changes a result.
struct OverlapOptions {
  SchedulePolicy policy = SchedulePolicy::kFree;
  SeatRates rates;              // what a seat reaches: tells the phases of ops
  std::vector<int> gate_limit;  // a domain: access-intensive ops at once
  bool spare_crowded = true;    // a core that runs others too opens its domain's gate (policy.h)
  double defer_memory = 0.1;    // gate+defer: deferral may enlarge the arena by this part of it
};

// Options for a gated policy: its bandwidth is measured on first use (two seconds) and then kept in
// the user's cache folder, its arithmetic each time (half a second); for others nothing is
// measured. `limit`: access-intensive ops of a domain at once, 0: the fewest seats that saturate
// its memory. `domain_nodes`: OS NUMA node of each domain (-1: not bound). Setup code; throws
// Error.
OverlapOptions MeasureOverlap(SchedulePolicy policy, int limit, const std::vector<Seat>& seats,
                              const std::vector<int>& domain_nodes);

// The plan's ops as the scheduler sees them (NextOp::deferred is the instance's to say).
std::vector<NextOp> SchedulerOps(const Plan& plan, const SeatRates& rates);

// The gates of a run's domains, as instances and gradient server know them.
class Overlap final : public SliceGate {
 public:
  Overlap(const OverlapOptions& options, const std::vector<Seat>& seats, StopFlag& stop);
  Scheduler& scheduler() { return scheduler_; }
  bool gated() const;  // whether anybody can ever be kept waiting

  bool TryEnter(int leaf) noexcept override {
    return scheduler_.Next(leaf, {.phase = Phase::kAccessIntensive}) == Action::kRun;
  }
  void Leave(int leaf) noexcept override { scheduler_.Leave(leaf); }
  Outcome AwaitRoom(int leaf) noexcept override { return scheduler_.AwaitRoom(leaf); }

 private:
  int leaves_;
  Scheduler scheduler_;
};

// Whether anything would ever be deferred: only where somebody may have to wait.
bool DefersOps(const OverlapOptions& options, const std::vector<Seat>& seats);

// Null where instances run as they come.
std::unique_ptr<Overlap> MakeOverlap(const OverlapOptions& options, const std::vector<Seat>& seats,
                                     StopFlag& stop);

}  // namespace parax
