#pragma once

#include <cstdint>
#include <vector>

#include "parax/sched/policy.h"
#include "parax/sched/sim_memory.h"

namespace parax {

// A discrete-event simulation of the instances of one training run on one machine: the decisions of
// sched/policy.h and the gradient server's tasks, on ops whose costs are given. The model and its
// limits are in docs/design/simulator.md.

// What an instance does at once. Without rivals for memory it takes `seconds`; next to other
// working cores it slows down towards `crowded_seconds`, for what they share beside memory; and it
// is no faster than its bytes come.
struct SimWork {
  double seconds = 0;
  double crowded_seconds = 0;  // with all other cores of the domain at work; at least `seconds`
  double bytes = 0;            // to and from the domain's memory
  int cores = 1;               // at work
};

struct SimOp {
  SimWork work;
  NextOp next;              // as the scheduler sees it
  int latest = -1;          // op before which it must have run, when deferred
  std::vector<int> awaits;  // buckets whose last update must be in before it
  std::vector<int> uses;    // buckets that it reads or writes
};

// A part of a bucket that one instance of `domain` reduces, and later updates.
struct SimSlice {
  int domain = 0;
  SimWork reduce;  // with one phase: reduces and updates
  SimWork update;
};
struct SimServer {
  bool commit = true;                         // updates wait until all buckets are reduced
  std::vector<std::vector<SimSlice>> slices;  // of each bucket, in backward order
};

struct SimSetup {
  std::vector<SimOp> ops;  // of a training pass, in the plan's order
  int passes = 1;          // micro-batches an iteration; buckets are published in the last
  SimServer server;
  std::vector<int> leaf_domain;  // one an instance: its domain
  int cores_per_domain = 1;
  std::vector<double> bandwidth;  // of each domain, see BandwidthCurve
  SchedulePolicy policy = SchedulePolicy::kFree;
  int gate_limit = 1;  // access-intensive ops and slices of a domain at once
  // Standard deviation of an op's time over its mean: without it instances that begin together
  // would stay together for good.
  double jitter = 0;
  uint64_t seed = 0;
  int warm_up = 2, iterations = 6;  // not measured, measured; the latter at least 1
  bool events = false;              // keep them
};

struct SimEvent {
  int leaf = 0;
  int iteration = 0;  // from 1
  int op = -1;        // -1: a slice
  bool access_intensive = false;
  double begin = 0, end = 0;  // seconds
};

struct SimResult {
  double seconds = 0;  // a measured iteration, on average
  // Of the instances' time from begin to end, warm-up too, summed over instances.
  double in_ops = 0, in_slices = 0, at_gate = 0, for_updates = 0, for_start = 0;
  double bytes = 0;           // moved, all domains
  double most_bandwidth = 0;  // of a domain at any time, bytes a second
  int64_t deferred = 0;       // ops
  std::vector<SimEvent> events;
};

// The same setup gives the same result. Throws Error when instances come to wait for each other
// for good.
SimResult Simulate(const SimSetup& setup);

}  // namespace parax
