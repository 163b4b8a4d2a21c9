#include "parax/sched/scheduler.h"

#include <immintrin.h>

#include <algorithm>

namespace parax {
namespace {

constexpr int kSpins = 200;
constexpr std::chrono::milliseconds kSleep{20};  // between looks at the stop flag and the deadline
constexpr uint64_t kPassEnded = uint64_t{1} << 32;

size_t Domains(const std::vector<int>& leaf_domain) {
  return leaf_domain.empty() ? 0 : static_cast<size_t>(*std::ranges::max_element(leaf_domain)) + 1;
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, StopFlag& stop)
    : policy_(options.policy),
      wait_timeout_(options.wait_timeout),
      stop_(stop),
      gates_(Domains(options.leaf_domain)),
      leaves_(options.leaf_domain.size()) {
  for (size_t leaf = 0; leaf < leaves_.size(); ++leaf) {
    leaves_[leaf].domain = options.leaf_domain[leaf];
  }
  if (policy_ != SchedulePolicy::kGate && policy_ != SchedulePolicy::kGateDefer) return;
  for (size_t domain = 0; domain < gates_.size(); ++domain) {
    const auto leaves = std::ranges::count(options.leaf_domain, static_cast<int>(domain));
    gates_[domain].limit = GatePlaces(policy_, options.limit.at(domain), static_cast<int>(leaves));
  }
}

Action Scheduler::Next(int leaf, const NextOp& next) noexcept {
  Gate& gate = GateOf(leaf);
  const int limit = LimitFor(leaf);
  int running = gate.running.load(std::memory_order_acquire);
  for (;;) {
    const Action action = Decide(policy_, {running, limit}, next);
    const bool takes = next.phase == Phase::kAccessIntensive && limit > 0;
    if (action != Action::kRun || !takes) return action;
    if (gate.running.compare_exchange_weak(running, running + 1, std::memory_order_acq_rel,
                                           std::memory_order_acquire)) {
      return action;
    }
  }
}

void Scheduler::Lost(int leaf, double part) noexcept {
  Leaf& self = leaves_[Index(leaf)];
  Gate& gate = GateOf(leaf);
  const bool crowded = Crowded(part);
  if (crowded != self.crowded) gate.crowded.fetch_add(crowded ? 1 : -1, std::memory_order_relaxed);
  self.crowded = crowded;
  self.ungated = gate.crowded.load(std::memory_order_relaxed) > 0;
}

Outcome Scheduler::AwaitRoom(int leaf) noexcept {
  Gate& gate = GateOf(leaf);
  const int limit = LimitFor(leaf);
  const auto room = [&] {
    return limit == 0 || gate.running.load(std::memory_order_seq_cst) < limit;
  };
  for (int i = 0; i < kSpins; ++i) {
    if (room()) return Outcome::kOk;
    _mm_pause();
  }
  for (WaitingTime waited;;) {
    // Looking again after `seen` was read: whoever leaves later rings, and the sleep ends.
    const uint32_t seen = gate.left.count();
    if (room()) return Outcome::kOk;
    if (stop_.stopped()) return Outcome::kStopped;
    if (waited.Reaches(wait_timeout_)) {
      stop_.Fail(Outcome::kTimeout, "place at the gate for leaf", leaf);
      return Outcome::kTimeout;
    }
    gate.left.Wait(seen, kSleep);
  }
}

void Scheduler::Leave(int leaf) noexcept {
  if (LimitFor(leaf) == 0) return;
  Gate& gate = GateOf(leaf);
  gate.running.fetch_sub(1, std::memory_order_seq_cst);
  gate.left.Ring(1);  // one place: more would wake up to find it taken
}

Outcome Scheduler::Stagger(int leaf, int op, int ops) noexcept {
  Leaf& self = leaves_[Index(leaf)];
  if (self.staggered) return Outcome::kOk;
  if (leaf == 0) {
    self.staggered = op + 1 == ops;
    first_pass_.Publish(self.staggered ? kPassEnded : static_cast<uint64_t>(op));
    return Outcome::kOk;
  }
  self.staggered = true;
  const int begin = StaggerOp(leaf, static_cast<int>(leaves_.size()), ops);
  return first_pass_.Wait(static_cast<uint64_t>(begin), stop_, wait_timeout_,
                          {"staggered start of leaf", leaf});
}

}  // namespace parax
