#include "parax/sched/sim.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "parax/base/error.h"

namespace parax {
namespace {

constexpr double kGB = 1e9;

SimOp Compute(double seconds, double bytes = 0) {
  SimOp op;
  op.work = {.seconds = seconds, .crowded_seconds = seconds, .bytes = bytes};
  return op;
}

SimOp Memory(double seconds, double bytes) {
  SimOp op = Compute(seconds, bytes);
  op.next.phase = Phase::kAccessIntensive;
  return op;
}
SimOp WeightGradient(double seconds, int latest) {
  SimOp op = Compute(seconds);
  op.next.deferrable = true;
  op.latest = latest;
  return op;
}

// Two layers forward and backward, a bucket each, of which bucket 0 is the upper layer's.
SimSetup Network(int instances, int domains = 1) {
  SimSetup setup;
  setup.ops = {Compute(3e-3), Memory(1e-3, 40e6),      Compute(4e-3), Memory(2e-3, 80e6),
               Compute(4e-3), WeightGradient(3e-3, 9), Compute(2e-3), Memory(2e-3, 80e6),
               Compute(3e-3), Memory(1e-3, 40e6)};
  for (const int op : {0, 9}) setup.ops[static_cast<size_t>(op)].uses = {1};
  for (const int op : {2, 4, 5}) setup.ops[static_cast<size_t>(op)].uses = {0};
  setup.ops[0].awaits = {1};
  setup.ops[2].awaits = {0};
  const SimWork slice{.seconds = 5e-5, .crowded_seconds = 5e-5, .bytes = 2e6};
  setup.server.slices.resize(2);
  for (int s = 0; s < 4; ++s) {
    for (auto& bucket : setup.server.slices) bucket.push_back({s % domains, slice, slice});
  }
  for (int leaf = 0; leaf < instances; ++leaf) {
    setup.leaf_domain.push_back(leaf * domains / instances);
  }
  setup.cores_per_domain = instances / domains;
  setup.bandwidth.assign(static_cast<size_t>(setup.cores_per_domain), 60 * kGB);
  setup.bandwidth[0] = 40 * kGB;
  setup.jitter = 0.05;
  setup.events = true;
  return setup;
}

double SumOfOps(const SimSetup& setup) {
  double seconds = 0;
  for (const SimOp& op : setup.ops) seconds += op.work.seconds;
  return seconds;
}

const std::vector<SchedulePolicy> kPolicies = {SchedulePolicy::kFree, SchedulePolicy::kStagger,
                                               SchedulePolicy::kGate, SchedulePolicy::kGateDefer};

TEST(Simulate, OneInstanceTakesTheSumOfItsWork) {
  SimSetup setup = Network(1);
  setup.jitter = 0;
  for (const SchedulePolicy policy : kPolicies) {
    setup.policy = policy;
    const double slices = 16 * 2e6 / (40 * kGB);  // 8 reduced, 8 updated, no work next to them
    EXPECT_NEAR(Simulate(setup).seconds, SumOfOps(setup) + slices, 1e-9);
  }
  setup.server.commit = false;
  EXPECT_NEAR(Simulate(setup).seconds, SumOfOps(setup) + 8 * 2e6 / (40 * kGB), 1e-9);
}

TEST(Simulate, EveryInstanceDoesAllWorkAndOneAtATime) {
  for (const SchedulePolicy policy : kPolicies) {
    SimSetup setup = Network(8, 2);
    setup.policy = policy;
    const SimResult result = Simulate(setup);
    std::map<int, double> free_at;
    std::map<std::pair<int, int>, int> runs;
    int slices = 0;
    for (const SimEvent& event : result.events) {
      EXPECT_GE(event.begin, free_at[event.leaf]);
      EXPECT_GT(event.end, event.begin);
      free_at[event.leaf] = event.end;
      event.op < 0 ? ++slices : ++runs[{event.leaf, event.op}];
    }
    const int iterations = setup.warm_up + setup.iterations;
    ASSERT_EQ(runs.size(), 8 * setup.ops.size());
    for (const auto& [what, count] : runs) EXPECT_EQ(count, iterations);
    // The last iteration's may remain.
    EXPECT_LE(slices, 16 * iterations);
    EXPECT_GE(slices, 16 * (iterations - 1));
    EXPECT_LE(result.most_bandwidth, 60 * kGB * (1 + 1e-9));
  }
}

TEST(Simulate, UpdatesOnceAnIterationOfSeveralPasses) {
  SimSetup setup = Network(1);
  setup.jitter = 0;
  setup.passes = 3;
  const double slices = 16 * 2e6 / (40 * kGB);
  EXPECT_NEAR(Simulate(setup).seconds, 3 * SumOfOps(setup) + slices, 1e-9);
}

TEST(Simulate, MovesAllBytes) {
  SimSetup setup = Network(4);
  setup.jitter = 0;
  setup.server.slices.clear();
  for (SimOp& op : setup.ops) op.awaits = op.uses = {};
  EXPECT_NEAR(Simulate(setup).bytes, 4 * 8 * 240e6, 1);
}

TEST(Simulate, GateOfOneKeepsAccessIntensiveWorkApart) {
  for (const SchedulePolicy policy : {SchedulePolicy::kGate, SchedulePolicy::kGateDefer}) {
    SimSetup setup = Network(8, 2);
    setup.policy = policy;
    std::vector<std::vector<SimEvent>> of_domain(2);
    for (const SimEvent& event : Simulate(setup).events) {
      if (event.access_intensive) of_domain[static_cast<size_t>(event.leaf / 4)].push_back(event);
    }
    for (auto& events : of_domain) {
      std::ranges::sort(events, {}, &SimEvent::begin);
      for (size_t i = 1; i < events.size(); ++i) EXPECT_GE(events[i].begin, events[i - 1].end);
    }
  }
  SimSetup free = Network(8, 2);
  const SimResult result = Simulate(free);  // which is not so by itself
  EXPECT_TRUE(std::ranges::any_of(result.events, [&](const SimEvent& a) {
    return a.access_intensive && std::ranges::any_of(result.events, [&](const SimEvent& b) {
             return b.access_intensive && a.leaf / 4 == b.leaf / 4 && a.leaf != b.leaf &&
                    a.begin < b.end && b.begin < a.end;
           });
  }));
}

// Between two of its works an instance stands only where it has nothing put off.
TEST(Simulate, NobodyWaitsAtTheGateWithWorkPutOff) {
  SimSetup setup = Network(4);
  setup.policy = SchedulePolicy::kGateDefer;
  const SimResult result = Simulate(setup);
  EXPECT_GT(result.deferred, 0);
  std::vector<std::vector<SimEvent>> of_leaf(4);
  for (const SimEvent& event : result.events) {
    of_leaf[static_cast<size_t>(event.leaf)].push_back(event);
  }
  for (const auto& events : of_leaf) {
    for (size_t i = 1; i < events.size(); ++i) {
      const SimEvent& after = events[i];
      if (after.begin <= events[i - 1].end || after.op < 7) continue;
      const auto gradient = std::ranges::find_if(events, [&](const SimEvent& event) {
        return event.op == 5 && event.iteration == after.iteration;
      });
      ASSERT_NE(gradient, events.end());
      EXPECT_LT(gradient->begin, after.begin) << "op " << after.op;
    }
  }
}

TEST(Simulate, DeferredWorkRunsBeforeItsLatestPlace) {
  SimSetup setup = Network(4);
  setup.policy = SchedulePolicy::kGateDefer;
  setup.ops[5].latest = 8;
  std::map<std::pair<int, int>, double> gradient;
  for (const SimEvent& event : Simulate(setup).events) {
    if (event.op == 5) gradient[{event.leaf, event.iteration}] = event.end;
    if (event.op == 8) {
      ASSERT_TRUE(gradient.contains({event.leaf, event.iteration}));
    }
  }
}

TEST(Simulate, StaggerHoldsBackTheFirstPass) {
  SimSetup setup = Network(3);
  setup.policy = SchedulePolicy::kStagger;
  double of_zero = 0, of_two = 0;
  for (const SimEvent& event : Simulate(setup).events) {
    if (event.iteration != 1) continue;
    if (event.leaf == 0 && event.op == 5) of_zero = event.end;
    if (event.leaf == 2 && event.op == 0) of_two = event.begin;
  }
  EXPECT_EQ(of_two, of_zero);  // leaf 2 of 3 begins before op 6 of 10
}

TEST(Simulate, UpdatesWaitForTheSlowestOnlyAsFarAsThePolicySays) {
  SimSetup setup = Network(2);
  setup.jitter = 0;
  const auto first = [&](int op, int iteration) {
    const SimResult result = Simulate(setup);
    const auto event = std::ranges::find_if(result.events, [&](const SimEvent& e) {
      return e.leaf == 0 && e.op == op && e.iteration == iteration;
    });
    return event->begin;
  };
  const double commit = first(0, 2);
  setup.server.commit = false;
  EXPECT_LT(first(0, 2), commit);
}

TEST(Simulate, IsDeterministicAndSeeded) {
  SimSetup setup = Network(8, 2);
  const SimResult a = Simulate(setup), b = Simulate(setup);
  EXPECT_EQ(a.seconds, b.seconds);
  EXPECT_EQ(a.bytes, b.bytes);
  setup.seed = 1;
  EXPECT_NE(Simulate(setup).seconds, a.seconds);
}

TEST(Simulate, MoreBandwidthIsNeverSlower) {
  for (const SchedulePolicy policy : kPolicies) {
    double before = 1e9;
    for (double factor = 0.25; factor < 20; factor *= 2) {
      SimSetup setup = Network(8);
      setup.jitter = 0;
      setup.policy = policy;
      for (double& value : setup.bandwidth) value *= factor;
      const double seconds = Simulate(setup).seconds;
      EXPECT_LE(seconds, before * (1 + 1e-9)) << factor;
      before = seconds;
    }
    const bool gated = policy == SchedulePolicy::kGate || policy == SchedulePolicy::kGateDefer;
    EXPECT_EQ(before < 1.25 * SumOfOps(Network(8)), !gated);  // one place for 8 x 6 of 25 ms
  }
}

TEST(Simulate, CrowdedCoresAreSlower) {
  SimSetup setup = Network(2);
  setup.jitter = 0;
  setup.server.slices.clear();
  setup.ops = {Compute(1e-3)};
  setup.ops[0].work.crowded_seconds = 1.5e-3;
  EXPECT_NEAR(Simulate(setup).seconds, 1.5e-3, 1e-12);
  setup.cores_per_domain = 3;  // one of the two others is at work
  EXPECT_NEAR(Simulate(setup).seconds, 1.25e-3, 1e-12);
  setup.cores_per_domain = 6;
  setup.ops[0].work.cores = 2;  // two of the four others
  EXPECT_NEAR(Simulate(setup).seconds, 1.25e-3, 1e-12);
}

TEST(Simulate, SaysWhenNothingCanGoOn) {
  SimSetup setup = Network(2);
  setup.ops[0].uses = setup.ops[9].uses = {};  // bucket 1 is never published
  EXPECT_THROW((void)Simulate(setup), Error);
}

TEST(BandwidthCurve, NeverFallsAndIsNoMoreThanOfOneEach) {
  const BandwidthCurve curve({10, 30, 15, 25});
  EXPECT_EQ(curve.At(0.5), 5);
  EXPECT_EQ(curve.At(1), 10);
  EXPECT_EQ(curve.At(2), 20);
  EXPECT_EQ(curve.At(3), 20);
  EXPECT_EQ(curve.At(3.5), 22.5);
  EXPECT_EQ(curve.At(9), 25);
  EXPECT_EQ(curve.most(), 25);
}

TEST(ShareBandwidth, GivesWhatIsAskedForOrEqualParts) {
  const BandwidthCurve curve({10, 16, 18});
  std::vector<Demand> light = {{4, 1}, {3, 1}, {2, 1}};
  ShareBandwidth(curve, light);
  for (const Demand& demand : light) EXPECT_EQ(demand.granted, demand.bytes);

  std::vector<Demand> heavy = {{10, 1}, {10, 1}, {1, 1}};  // 2.1 cores' worth: 16.2
  ShareBandwidth(curve, heavy);
  EXPECT_DOUBLE_EQ(heavy[0].granted, 7.6);
  EXPECT_DOUBLE_EQ(heavy[1].granted, 7.6);
  EXPECT_DOUBLE_EQ(heavy[2].granted, 1);

  std::vector<Demand> wide = {{16, 2}, {10, 1}};
  ShareBandwidth(curve, wide);
  EXPECT_NEAR(wide[0].granted, 2 * wide[1].granted, 1e-12);
  EXPECT_NEAR(wide[0].granted + wide[1].granted, curve.At(2.6), 1e-12);
}

}  // namespace
}  // namespace parax
