// The overlap scheduler at work in training: the same bits, the limit kept, no needless waits.
#include "parax/engine/overlap.h"

#include <gtest/gtest.h>
#include <immintrin.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <thread>

#include "parax/engine/weights.h"
#include "parax/models/resnet.h"
#include "tests/training/training_harness.h"

namespace parax::test {
namespace {

constexpr int kInstances = 3;
constexpr SeatRates kRates = {.flops = 100e9, .bytes = 10e9, .bytes_alone = 20e9};

struct Trained {
  TrainEnd end;
  TensorMap weights;
  std::vector<std::vector<TraceEvent>> events;  // an instance
  std::vector<NextOp> ops;                      // of the training plan
  std::vector<int> latest;
  size_t arena = 0;
};

class FailingHook : public OpHook {
 public:
  Outcome Enter(int leaf, uint64_t iteration, int op) noexcept override {
    return leaf == 1 && iteration == 2 && op == 40 ? Outcome::kKernelFailed : Outcome::kOk;
  }
};

// Several instances share a core here, and other tests run beside: only by `spare_crowded` may that
// open the gate.
Trained TrainWith(SchedulePolicy policy, OpHook* hook = nullptr, double defer_memory = 0.5,
                  bool spare_crowded = false, uint64_t iterations = 4) {
  const Graph graph = BuildModel({.name = "resnet20", .classes = 10, .image_size = 16});
  TrainerOptions options = GradientOptions(kInstances, 24, 12, 2, 10);  // two micro-batches each
  options.learning_rate = [](uint64_t) { return 0.05; };
  options.hook = hook;
  options.overlap = {.policy = policy,
                     .rates = kRates,
                     .gate_limit = {1},
                     .spare_crowded = spare_crowded,
                     .defer_memory = defer_memory};
  Trace trace(4 * Trace::kEventsPerTrack);  // 40 iterations
  options.trace = &trace;
  Trainer trainer(graph, options);
  trainer.Load(InitTensors(graph, 3));
  std::vector<float> images(24 * 3 * 16 * 16);
  for (size_t i = 0; i < images.size(); ++i) images[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
  std::vector<int32_t> labels(24);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int32_t>(i % 10);
  FixedSource source(options.train, 3 * 16 * 16, images, labels);
  Trained run;
  run.end = trainer.Train(
      iterations, source, [](const StepReport&) {}, [] { return false; });
  run.weights = trainer.Weights();
  for (const auto& track : trace.tracks()) {
    EXPECT_EQ(track->overwritten(), 0u);
    run.events.push_back(track->Events());
  }
  const Plan& plan = *trainer.plans()[0];
  run.ops = SchedulerOps(plan, kRates);
  for (const PlanOp& op : plan.ops) run.latest.push_back(op.latest);
  run.arena = plan.arena_bytes;
  return run;
}

bool IsAccess(const Trained& run, const TraceEvent& event) {
  return event.kind == TraceKind::kServerWork ||
         (event.kind == TraceKind::kOp && run.ops[event.index].phase == Phase::kAccessIntensive);
}

// Pairs of access-intensive ops of different instances that ran at the same time. Slices are left
// out: their events also hold the time that was waited in.
int Overlaps(const Trained& run) {
  int found = 0;
  for (size_t a = 0; a < run.events.size(); ++a) {
    for (size_t b = a + 1; b < run.events.size(); ++b) {
      for (const TraceEvent& x : run.events[a]) {
        for (const TraceEvent& y : run.events[b]) {
          if (x.kind != TraceKind::kOp || y.kind != TraceKind::kOp) continue;
          if (!IsAccess(run, x) || !IsAccess(run, y)) continue;
          found += x.begin < y.end && y.begin < x.end;
        }
      }
    }
  }
  return found;
}

// Where instances meet at the gate by chance only.
bool OneCpu() {
  cpu_set_t cpus;
  return sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) == 1;
}

TEST(OverlapTest, EveryPolicyGivesTheSameBits) {
  const Trained free = TrainWith(SchedulePolicy::kFree);
  ASSERT_EQ(free.end.outcome, Outcome::kOk) << free.end.reason;
  for (const SchedulePolicy policy :
       {SchedulePolicy::kStagger, SchedulePolicy::kGate, SchedulePolicy::kGateDefer}) {
    const Trained run = TrainWith(policy);
    ASSERT_EQ(run.end.outcome, Outcome::kOk) << run.end.reason;
    for (const auto& [name, tensor] : free.weights) {
      EXPECT_EQ(run.weights.at(name).values, tensor.values) << name;
    }
  }
}

TEST(OverlapTest, WithOnePlaceNoTwoAccessIntensiveOpsOverlap) {
  // The other side of what is tested: ungated they do meet, if not in every short training.
  bool met = OneCpu();
  for (int i = 0; i < 50 && !met; ++i) met = Overlaps(TrainWith(SchedulePolicy::kFree)) > 0;
  EXPECT_TRUE(met) << "nothing ever can";
  EXPECT_EQ(Overlaps(TrainWith(SchedulePolicy::kGate)), 0);
  EXPECT_EQ(Overlaps(TrainWith(SchedulePolicy::kGateDefer)), 0);
}

// Adds up how often ops were deferred and somebody waited at the gate.
void CheckDeferral(const Trained& run, int& deferred, int& waits) {
  for (const auto& events : run.events) {
    std::set<int> open;  // deferrable ops of the pass whose turn has passed
    int turn = 0;        // ops before it have had their turn
    for (const TraceEvent& event : events) {
      if (event.kind != TraceKind::kOp && event.kind != TraceKind::kGateWait) continue;
      const int op = event.index;
      if (event.kind == TraceKind::kOp && open.erase(op) > 0) {
        ++deferred;
        continue;
      }
      if (op < turn) turn = 0;  // the next micro-batch
      for (; turn < op; ++turn) {
        EXPECT_TRUE(run.ops[static_cast<size_t>(turn)].deferrable) << turn;
        open.insert(turn);
      }
      if (event.kind == TraceKind::kGateWait) {
        ++waits;
        EXPECT_TRUE(open.empty()) << "op " << op << " waited";
        continue;
      }
      turn = op + 1;
      for (const int late : open) EXPECT_GT(run.latest[static_cast<size_t>(late)], op);
    }
    EXPECT_TRUE(open.empty());
  }
}

TEST(OverlapTest, NobodyWaitsWhoHasDeferredWorkAndNothingIsLate) {
  int deferred = 0, waits = 0;
  // Whether instances meet at the gate in one short training is up to the machine.
  for (int i = 0; i < 50 && (deferred == 0 || waits == 0); ++i) {
    CheckDeferral(TrainWith(SchedulePolicy::kGateDefer), deferred, waits);
    if (OneCpu() && deferred > 0) break;
  }
  EXPECT_GT(deferred, 0);
  EXPECT_TRUE(waits > 0 || OneCpu());
}

TEST(OverlapTest, DeferralKeepsToItsMemory) {
  const Trained without = TrainWith(SchedulePolicy::kGate);
  EXPECT_TRUE(std::ranges::all_of(without.latest, [](int latest) { return latest < 0; }));
  for (const double part : {0.0, 0.1, 0.5}) {
    const Trained run = TrainWith(SchedulePolicy::kGateDefer, nullptr, part);
    EXPECT_LE(static_cast<double>(run.arena), (1 + part) * static_cast<double>(without.arena));
  }
}

// Spins on every CPU, at least one thread for each instance.
class Crowd {
 public:
  Crowd() {
    const unsigned threads = std::max(2 * std::thread::hardware_concurrency(), 4u);
    for (unsigned i = 0; i < threads; ++i) {
      spinning_.emplace_back([](const std::stop_token& stop) {
        while (!stop.stop_requested()) _mm_pause();
      });
    }
  }

 private:
  std::vector<std::jthread> spinning_;
};

int WaitsSince(const Trained& run, uint64_t first) {
  int waits = 0;
  for (const auto& events : run.events) {
    waits += static_cast<int>(std::ranges::count_if(events, [&](const TraceEvent& event) {
      return event.kind == TraceKind::kGateWait && event.iteration >= first;
    }));
  }
  return waits;
}

TEST(OverlapTest, BesideOtherProgramsNobodyWaitsAtTheGate) {
  if (access("/proc/thread-self/schedstat", R_OK) != 0) {
    GTEST_SKIP() << "this kernel does not tell what time a thread lost";
  }
  constexpr uint64_t kIterations = 40, kLast = 36;
  const Crowd crowd;
  int waits = 0;
  for (int i = 0; i < 20 && waits == 0 && !OneCpu(); ++i) {
    waits = WaitsSince(TrainWith(SchedulePolicy::kGate), 1);
  }
  EXPECT_TRUE(waits > 0 || OneCpu()) << "nobody ever does";
  const Trained run = TrainWith(SchedulePolicy::kGate, nullptr, 0.5, true, kIterations);
  EXPECT_EQ(WaitsSince(run, kLast), 0);
}

TEST(OverlapTest, AFailureLeavesNobodyAtTheGate) {
  for (const SchedulePolicy policy : {SchedulePolicy::kGate, SchedulePolicy::kGateDefer}) {
    FailingHook hook;
    const Clock::time_point begin = Clock::now();
    EXPECT_EQ(TrainWith(policy, &hook).end.outcome, Outcome::kKernelFailed);
    EXPECT_LT(SecondsSince(begin), 60);
  }
}

}  // namespace
}  // namespace parax::test
