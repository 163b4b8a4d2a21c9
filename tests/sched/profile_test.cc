#include "parax/sched/profile.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace parax {
namespace {

constexpr uint64_t kMega = 1'000'000;  // cycles

// Two instances; a training plan of three ops in two batch sizes, and an evaluation plan.
struct TwoInstances {
  TwoInstances() {
    const TraceOp conv{"conv1 forward", "conv forward", "brg", 8e6, 1e5};
    const TraceOp weights{"conv1 backward", "conv backward weights", "brg", 4e6, 1e5};
    const TraceOp norm{"bn1 forward", "batch_norm forward", "parax:bn", 0, 4e6};
    for (const char* name : {"instance 0", "instance 1"}) trace.AddTrack(name);
    TraceOp scale = conv;
    scale.implementation = "scale";
    scale.flops = 0;
    trace.AddPlan({true, 8, {conv, norm, weights, scale}});
    trace.AddPlan({true, 4, {conv, norm, weights, scale}});
    trace.AddPlan({false, 8, {conv, norm}});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a clock's tick is small to that
    for (const auto& track : trace.tracks()) {
      Spend(*track, 5, 0, 0, TraceKind::kOp, 3 * kMega);
      Spend(*track, 5, 0, 3, TraceKind::kOp, 1 * kMega);
      Spend(*track, 5, 0, 1, TraceKind::kOp, 6 * kMega);
      Spend(*track, 5, 0, 2, TraceKind::kOp, 2 * kMega);
      Spend(*track, 5, 1, 1, TraceKind::kOp, 3 * kMega);
      Spend(*track, 0, 2, 0, TraceKind::kOp, 9 * kMega);
      Spend(*track, 5, 0, 0, TraceKind::kInputWait, 1 * kMega);
      Spend(*track, 5, 0, 3, TraceKind::kBucketWait, 3 * kMega);
      Spend(*track, 5, 0, 0, TraceKind::kServerWork, 2 * kMega);
      Spend(*track, 5, 0, 1, TraceKind::kGateWait, kMega / 2);
      track->sums(true).slices = 4 * kMega;
      track->sums(true).whole = 22 * kMega;
      track->sums(true).lost = 0.25;
      track->sums(false).whole = 10 * kMega;
    }
  }
  static void Spend(TraceTrack& track, uint64_t iteration, uint16_t plan, uint16_t index,
                    TraceKind kind, uint64_t cycles) {
    track.Sum({100, 100 + cycles, iteration, plan, index, kind});
  }
  Trace trace{0};
};

TEST(Profile, PartsAddUpToTheWhole) {
  TwoInstances two;
  const Profile p = Summarise(two.trace, true, {1e9, 1e9});
  const double unit = p.whole / 44;  // seconds of a million cycles
  EXPECT_EQ(p.instances, 2u);
  EXPECT_NEAR(p.compute, 30 * unit, 1e-3 * unit);
  EXPECT_NEAR(p.input_wait, 2 * unit, 1e-3 * unit);
  EXPECT_NEAR(p.reduction, 8 * unit, 1e-3 * unit);
  EXPECT_NEAR(p.server_wait, 2 * unit, 1e-3 * unit) << "waits less the slices run meanwhile";
  EXPECT_DOUBLE_EQ(p.lost, 0.5);
  EXPECT_NEAR(p.gate_wait, 1 * unit, 1e-3 * unit);
  EXPECT_NEAR(p.other, 1 * unit, 1e-3 * unit);
  EXPECT_NEAR(p.efficiency(), 30.0 / 44, 1e-6);
  EXPECT_EQ(p.images, 16) << "of plans whose first op ran";
  EXPECT_NEAR(p.images_per_s() * p.whole, 2 * 16, 1e-9);
  EXPECT_DOUBLE_EQ(p.flops, 2 * 12e6);

  const Profile evaluation = Summarise(two.trace, false, {1e9, 1e9});
  EXPECT_NEAR(evaluation.efficiency(), 0.9, 1e-6);
  EXPECT_EQ(evaluation.images, 16);
  EXPECT_EQ(evaluation.reduction, 0);
}

TEST(Profile, SumsKindsAndOpsOverPlansAndInstances) {
  TwoInstances two;
  const Profile p = Summarise(two.trace, true, {1e9, 1e9});
  const double unit = p.whole / 44;
  ASSERT_EQ(p.kinds.size(), 3u);
  EXPECT_EQ(p.kinds[0].name, "batch_norm forward");
  EXPECT_EQ(p.kinds[0].runs, 4u) << "both batch sizes";
  EXPECT_NEAR(p.kinds[0].seconds, 18 * unit, 1e-3 * unit);
  EXPECT_DOUBLE_EQ(p.kinds[0].bytes, 16e6);
  EXPECT_EQ(p.kinds[2].name, "conv backward weights");
  ASSERT_EQ(p.ops.size(), 4u) << "of one name, but what prepares an op is another op";
}

TEST(Profile, PutsTheOpFirstThatIsFurthestAboveItsBound) {
  TwoInstances two;
  const double cycle = Summarise(two.trace, true, {1e9, 1e9}).whole / (44.0 * kMega);
  // Bounds: 10 operations a cycle, and 17.9 million cycles for batch norm, which took 18.
  const Profile p = Summarise(two.trace, true, {1e1 / cycle, 16e6 / (17.9 * kMega * cycle)});
  EXPECT_EQ(p.ops[0].name, "conv1 forward");
  EXPECT_NEAR(p.ops[0].least / cycle, 1.6e6, 1e4);
  EXPECT_EQ(p.ops.back().kind, "batch_norm forward");
  EXPECT_NEAR(p.ops.back().excess() / cycle, 0.1 * kMega, 1e5);
  const Profile generous = Summarise(two.trace, true, {1, 1});
  EXPECT_EQ(generous.ops[0].excess(), 0) << "faster than the bound is no debt";
}

TEST(Profile, ForgetsWhatWasBeforeTheMeasurement) {
  TwoInstances two;
  two.trace.ClearSums();
  const Profile p = Summarise(two.trace, true, {1e9, 1e9});
  EXPECT_EQ(p.whole, 0);
  EXPECT_TRUE(p.kinds.empty());
  EXPECT_EQ(p.efficiency(), 0);
}

}  // namespace
}  // namespace parax
