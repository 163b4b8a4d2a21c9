#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "parax/base/bell.h"
#include "parax/base/sequence.h"
#include "parax/sched/policy.h"

namespace parax {

struct SchedulerOptions {
  SchedulePolicy policy = SchedulePolicy::kFree;
  std::vector<int> leaf_domain;  // one a leaf (instance): its domain
  std::vector<int> limit;        // a domain: access-intensive ops at once, at least 1
  Clock::duration wait_timeout = std::chrono::minutes(10);
};

// What instances ask between two ops. Threads only carry out here what policy.h decides. Everything
// but the constructor is hot code: no allocation, lock or log.
class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, StopFlag& stop);

  // Whether anybody can ever be kept waiting at the gate of the leaf's domain: not with places for
  // all of its leaves.
  bool gated(int leaf) const { return GateOf(leaf).limit > 0; }

  // While the leaf holds no place: what part of its time it lost because its core ran others. For
  // as long as some leaf of its domain is crowded, each finds the gate open from its next call on.
  void Lost(int leaf, double part) noexcept;

  // Whether Stagger is to be called: before op `op` of `ops` of every pass. It holds back a leaf's
  // first.
  bool staggers() const { return policy_ == SchedulePolicy::kStagger; }
  Outcome Stagger(int leaf, int op, int ops) noexcept;
  // What to do about the leaf's next op. kRun gives an access-intensive op of a gated leaf a place,
  // which Leave gives back.
  Action Next(int leaf, const NextOp& next) noexcept;
  // After kWait: until somebody left. Whoever holds a place must not call this, nor wait for
  // another leaf otherwise, so all who hold one come to give it back.
  Outcome AwaitRoom(int leaf) noexcept;
  void Leave(int leaf) noexcept;  // nothing where the leaf needs no place

 private:
  // A counter that many write: places are few and any free one will do, so a single-writer sequence
  // a leaf would have to be summed over all leaves, and could not keep to a limit.
  struct alignas(64) Gate {
    std::atomic<int> running{0};
    std::atomic<int> crowded{0};  // leaves of the domain
    int limit = 0;                // 0: places for all
    Bell left;
  };
  struct alignas(64) Leaf {
    int domain = 0;
    // Its own thread's:
    bool crowded = false;
    bool ungated = false;    // until the next look: needs no place
    bool staggered = false;  // has begun (leaf 0: ended) its first pass
  };

  Gate& GateOf(int leaf) { return gates_[static_cast<size_t>(leaves_[Index(leaf)].domain)]; }
  const Gate& GateOf(int leaf) const {
    return gates_[static_cast<size_t>(leaves_[Index(leaf)].domain)];
  }
  int LimitFor(int leaf) const { return leaves_[Index(leaf)].ungated ? 0 : GateOf(leaf).limit; }
  static size_t Index(int leaf) { return static_cast<size_t>(leaf); }

  SchedulePolicy policy_;
  Clock::duration wait_timeout_;
  StopFlag& stop_;
  std::vector<Gate> gates_;  // a domain
  std::vector<Leaf> leaves_;
  Sequence first_pass_;  // op that leaf 0 has come to in its first pass
};

// A place at the gate, given back at the end of the scope however that is left.
class GatePlace {
 public:
  GatePlace(Scheduler* scheduler, int leaf) : scheduler_(scheduler), leaf_(leaf) {}
  ~GatePlace() {
    if (scheduler_ != nullptr) scheduler_->Leave(leaf_);
  }
  GatePlace(const GatePlace&) = delete;
  GatePlace& operator=(const GatePlace&) = delete;

 private:
  Scheduler* scheduler_;  // null: no place was taken
  int leaf_;
};

}  // namespace parax
