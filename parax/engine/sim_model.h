#pragma once

#include <vector>

#include "parax/engine/op_profile.h"
#include "parax/sched/machine_model.h"
#include "parax/sched/sim.h"

namespace parax {

// How much of an op more threads do not speed up: of t seconds on one core, n of them take
// t (part + (1 - part) / n) for the same work.
struct SerialParts {
  std::vector<double> ops;  // of the plan; empty: not known
};

// What was measured, where, and on what.
struct MeasuredNetwork {
  TrainerOptions options;  // of the run on all seats that was measured
  OpProfile profile;
  Plan plan;  // as measured, with latest positions for deferral
  MachineModel machine;
  SerialParts serial;
};
// Measures the network (MeasureOps), and plans it with `defer_memory` for deferral. Setup code;
// throws Error.
MeasuredNetwork MeasureNetwork(const Graph& graph, const TrainerOptions& options,
                               const MachineModel& machine, double defer_memory, double seconds);
// By what the same network takes on instances of several threads, each with as many images for a
// thread; in both all cores are busy.
SerialParts FindSerialParts(const MeasuredNetwork& one, const MeasuredNetwork& several);

struct SimCase {
  SchedulePolicy policy = SchedulePolicy::kFree;
  int instances = 1;
  int cores_per_instance = 1;
  int gate = 0;  // places a domain; 0: as few as saturate its memory
  uint64_t seed = 0;
};

// The network on `target`. As many images a core and pass as measured; where instances have more
// cores than those measured, ops are sped up by `serial`. See docs/design/simulator.md.
SimSetup SetupFor(const MeasuredNetwork& measured, const MachineModel& target, const SimCase& run);

}  // namespace parax
