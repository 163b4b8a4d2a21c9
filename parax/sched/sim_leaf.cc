// What an instance does between two works: as engine/instance_run.cc and gradserver/protocol.cc do
// with threads.
#include <algorithm>

#include "parax/sched/sim_internal.h"

namespace parax {

void Simulation::Proceed(int leaf) {
  Leaf& self = At(leaf);
  EndWaiting(self);
  while (self.wait == Wait::kNone && self.work == nullptr) {
    switch (self.stage) {
      case Stage::kPrepare:
        if (!MayStart(leaf)) return StartWaiting(leaf, Wait::kStart);
        self.stage = Stage::kAwait;
        break;
      case Stage::kAwait:
      case Stage::kEnded:
        if (self.stage == Stage::kAwait && !AwaitsUpdate(self)) {
          self.stage = Stage::kDue;
        } else if (!TrySlice(leaf)) {
          StartWaiting(leaf, tasks_.HasWork(self.domain) ? Wait::kGate : Wait::kUpdate);
        }
        break;
      case Stage::kDue:
        if (!RunDue(leaf)) self.stage = Stage::kSchedule;
        break;
      case Stage::kSchedule:
        Schedule(leaf);
        break;
      case Stage::kHelp:
        Advance(leaf);
        (void)TrySlice(leaf);
        break;
    }
  }
}

bool Simulation::MayStart(int leaf) {
  if (setup_.policy != SchedulePolicy::kStagger) return true;
  Leaf& self = At(leaf);
  const int ops = static_cast<int>(setup_.ops.size());
  if (leaf == 0) {
    if (self.iteration == 1 && self.pass == 0) first_pass_ = self.op + 1 == ops ? ops : self.op;
    return true;
  }
  const int begin = StaggerOp(leaf, static_cast<int>(leaves_.size()), ops);
  self.staggered = self.staggered || first_pass_ >= begin;
  return self.staggered;
}

bool Simulation::AwaitsUpdate(const Leaf& self) const {
  return std::ranges::any_of(setup_.ops[static_cast<size_t>(self.op)].awaits, [&](int bucket) {
    return tasks_.updates(bucket) < self.iteration - 1;
  });
}

bool Simulation::RunDue(int leaf) {
  Leaf& self = At(leaf);
  const auto due = std::ranges::find_if(
      self.deferred, [&](int op) { return setup_.ops[static_cast<size_t>(op)].latest <= self.op; });
  if (due == self.deferred.end()) return false;
  const int op = *due;
  self.deferred.erase(due);
  StartOp(leaf, op, false);
  return true;
}

void Simulation::Schedule(int leaf) {
  Leaf& self = At(leaf);
  NextOp next = setup_.ops[static_cast<size_t>(self.op)].next;
  next.deferred = !self.deferred.empty();
  switch (Decide(setup_.policy, DomainOf(self).gate, next)) {
    case Action::kRun:
      self.stage = Stage::kHelp;
      return StartOp(leaf, self.op, next.phase == Phase::kAccessIntensive);
    case Action::kDefer:
      self.stage = Stage::kHelp;
      self.deferred.push_back(self.op);
      ++result_.deferred;
      return;
    case Action::kRunDeferred: {
      const auto soonest = std::ranges::min_element(
          self.deferred, {}, [&](int op) { return setup_.ops[static_cast<size_t>(op)].latest; });
      const int op = *soonest;
      self.deferred.erase(soonest);
      return StartOp(leaf, op, false);
    }
    case Action::kWait:
      return StartWaiting(leaf, Wait::kGate);
  }
}

bool Simulation::TrySlice(int leaf) {
  Leaf& self = At(leaf);
  if (!tasks_.HasWork(self.domain) || !DomainOf(self).gate.open()) return false;
  self.slice = tasks_.Claim(self.domain);
  Start(leaf, tasks_.WorkOf(self.slice), -1, true);
  return true;
}

void Simulation::Advance(int leaf) {
  Leaf& self = At(leaf);
  self.stage = Stage::kPrepare;
  if (++self.op < static_cast<int>(setup_.ops.size())) return;
  self.op = 0;
  if (++self.pass < setup_.passes) return;
  self.pass = 0;
  const auto ended = static_cast<size_t>(self.iteration);
  if (++ended_[ended] == static_cast<int>(leaves_.size())) ended_at_[ended] = now_;
  self.open = uses_;
  if (self.iteration++ == last_) self.stage = Stage::kEnded;
}

void Simulation::Start(int leaf, const SimWork& work, int op, bool placed) {
  Leaf& self = At(leaf);
  Domain& domain = DomainOf(self);
  Catch(domain);
  self.work = &work;
  self.running_op = op;
  self.placed = placed && domain.gate.limit > 0;
  if (self.placed) ++domain.gate.running;
  self.left = Jitter(leaf);
  self.since = now_;
  domain.running.push_back(leaf);
}

void Simulation::StartWaiting(int leaf, Wait wait) {
  Leaf& self = At(leaf);
  self.wait = wait;
  self.since = now_;
  if (wait == Wait::kGate) DomainOf(self).at_gate.push_back(leaf);
}

void Simulation::EndWaiting(Leaf& self) {
  const double waited = self.stage == Stage::kEnded ? 0 : now_ - self.since;
  if (self.wait == Wait::kGate) result_.at_gate += waited;
  if (self.wait == Wait::kUpdate) result_.for_updates += waited;
  if (self.wait == Wait::kStart) result_.for_start += waited;
  self.wait = Wait::kNone;
}

}  // namespace parax
