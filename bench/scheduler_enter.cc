// What asking the scheduler costs between two ops: Next, and Leave where a place was taken. The
// design allows 100 ns while places are free.

#include <benchmark/benchmark.h>

#include <memory>

#include "parax/sched/scheduler.h"

namespace parax {
namespace {

constexpr int kLeaves = 8;

struct Gate {
  StopFlag stop;
  Scheduler scheduler;
  explicit Gate(SchedulePolicy policy)
      : scheduler({.policy = policy,
                   .leaf_domain = std::vector<int>(kLeaves, 0),
                   .limit = {4},
                   .wait_timeout = std::chrono::minutes(1)},
                  stop) {}
};

// All threads are leaves of one domain, each with a place whenever it asks.
void Enter(benchmark::State& state, SchedulePolicy policy, NextOp next) {
  static std::unique_ptr<Gate> gate;
  if (state.thread_index() == 0) gate = std::make_unique<Gate>(policy);
  const int leaf = state.thread_index();
  for (auto _ : state) {
    const Action action = gate->scheduler.Next(leaf, next);
    if (action == Action::kRun && next.phase == Phase::kAccessIntensive) {
      gate->scheduler.Leave(leaf);
    }
    benchmark::DoNotOptimize(action);
  }
}

constexpr NextOp kCompute = {.phase = Phase::kComputeBound, .deferrable = true};
constexpr NextOp kAccess = {.phase = Phase::kAccessIntensive};

BENCHMARK_CAPTURE(Enter, gate_compute, SchedulePolicy::kGate, kCompute);
BENCHMARK_CAPTURE(Enter, gate_access, SchedulePolicy::kGate, kAccess)
    ->ThreadRange(1, 2)
    ->UseRealTime();
BENCHMARK_CAPTURE(Enter, defer_compute, SchedulePolicy::kGateDefer, kCompute);
BENCHMARK_CAPTURE(Enter, defer_access, SchedulePolicy::kGateDefer, kAccess)
    ->ThreadRange(1, 2)
    ->UseRealTime();

}  // namespace
}  // namespace parax

BENCHMARK_MAIN();
