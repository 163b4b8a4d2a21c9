#pragma once

#include <deque>
#include <set>
#include <vector>

#include "parax/sched/sim.h"

namespace parax {

// The gradient server's tasks as gradserver/tasks.cc runs them: when which slices are ready.
class SimTasks {
 public:
  struct Slice {
    int task = 0;
    int number = 0;  // in its bucket
  };
  SimTasks(const SimServer& server, int leaves, int domains);

  // Both: whether a bell rings, so that who waits looks again.
  bool Publish(int bucket);  // by one leaf
  bool Finish(const Slice& slice);

  bool HasWork(int domain) const { return !ready_[static_cast<size_t>(domain)].empty(); }
  Slice Claim(int domain);  // of one that has work
  const SimWork& WorkOf(const Slice& slice) const;
  int updates(int bucket) const { return updates_[static_cast<size_t>(bucket)]; }

 private:
  struct Task {
    int bucket = 0;
    bool updates = false;                     // else it reduces
    std::vector<std::vector<int>> of_domain;  // numbers of slices
    std::vector<size_t> claimed;              // of each domain's
    size_t done = 0, slices = 0;
  };
  void AddTasks(bool updates, int domains);
  void Open(int task);

  const SimServer& server_;
  int leaves_;
  std::vector<Task> tasks_;           // the most urgent first
  std::vector<std::set<int>> ready_;  // a domain: tasks with slices to claim
  std::vector<int> published_;        // a bucket: leaves, of its next update
  std::vector<int> updates_;          // a bucket
  size_t reduced_ = 0;                // buckets, of the next commit
};

// sim.cc lets time go by, sim_leaf.cc is what an instance does between two works.
class Simulation {
 public:
  explicit Simulation(const SimSetup& setup);
  SimResult Run();

 private:
  enum class Stage { kPrepare, kAwait, kDue, kSchedule, kHelp, kEnded };
  enum class Wait { kNone, kStart, kUpdate, kGate };
  struct Leaf {
    int domain = 0;
    int iteration = 1, pass = 0, op = 0;
    Stage stage = Stage::kPrepare;
    bool staggered = false;
    std::vector<int> deferred;  // ops of the pass that are to run yet
    std::vector<int> open;      // a bucket: ops of the pass that use it and have not run yet
    // What it does: waits, or works.
    Wait wait = Wait::kNone;
    double since = 0;
    const SimWork* work = nullptr;
    int running_op = -1;  // -1: a slice
    SimTasks::Slice slice;
    uint64_t works = 0;   // started
    bool placed = false;  // at the gate
    double left = 0;      // of the work, 1 being all of it
    double rate = 0;      // of that a second
    double end = 0;
  };
  struct Domain {
    GateState gate;
    std::vector<int> running;  // leaves
    std::deque<int> at_gate;
    double now = 0;   // until when `left` is right
    double next = 0;  // when the first of `running` ends
  };

  // ---- sim.cc ----
  void Wake();
  void FinishWork(int leaf);
  void Catch(Domain& domain);   // up with now_, before anything of it changes
  void Repace(Domain& domain);  // rates and ends, after it
  double Jitter(int leaf);      // of the work it starts
  void Log(int leaf, const Leaf& self);

  // ---- sim_leaf.cc ----
  void Proceed(int leaf);  // until it works or waits
  bool MayStart(int leaf);
  bool AwaitsUpdate(const Leaf& self) const;
  bool RunDue(int leaf);
  void Schedule(int leaf);
  bool TrySlice(int leaf);
  void Advance(int leaf);
  void Start(int leaf, const SimWork& work, int op, bool placed);
  void StartOp(int leaf, int op, bool placed) {
    Start(leaf, setup_.ops[static_cast<size_t>(op)].work, op, placed);
  }
  void StartWaiting(int leaf, Wait wait);
  void EndWaiting(Leaf& self);

  Leaf& At(int leaf) { return leaves_[static_cast<size_t>(leaf)]; }
  Domain& DomainOf(const Leaf& self) { return domains_[static_cast<size_t>(self.domain)]; }

  const SimSetup& setup_;
  const BandwidthCurve curve_;
  const int last_;  // iteration
  SimTasks tasks_;
  std::vector<Leaf> leaves_;
  std::vector<Domain> domains_;
  std::vector<int> uses_;        // a bucket: ops that use it
  std::vector<Demand> demands_;  // scratch of Repace
  double now_ = 0;
  bool rang_ = false;
  int first_pass_ = 0;            // op that leaf 0 has come to in its first pass
  std::vector<int> ended_;        // an iteration: leaves that ended it
  std::vector<double> ended_at_;  // when the last one did; [0] = 0
  SimResult result_;
};

}  // namespace parax
