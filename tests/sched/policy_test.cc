#include "parax/sched/policy.h"

#include <gtest/gtest.h>

#include "parax/base/error.h"

namespace parax {
namespace {

constexpr SeatRates kSeat = {.flops = 100e9, .bytes = 10e9, .bytes_alone = 20e9};

TEST(Policy, NamesAreReadBack) {
  for (size_t i = 0; i < SchedulePolicyNames().size(); ++i) {
    EXPECT_EQ(ParseSchedulePolicy(SchedulePolicyNames()[i]), static_cast<SchedulePolicy>(i));
  }
  try {
    (void)ParseSchedulePolicy("gate+defre");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("'gate+defer'?"), std::string::npos) << error.what();
  }
}

TEST(Policy, PhaseComesFromIntensityAgainstTheBalance) {
  EXPECT_EQ(PhaseOf({.flops = 9.9e9, .bytes = 1e9}, kSeat), Phase::kAccessIntensive);
  EXPECT_EQ(PhaseOf({.flops = 10.1e9, .bytes = 1e9}, kSeat), Phase::kComputeBound);
  EXPECT_EQ(PhaseOf({}, kSeat), Phase::kComputeBound);
}

TEST(Policy, MeasuredTimeCorrectsThePhase) {
  const auto of = [](double seconds) {
    return PhaseOf({.flops = 1e9, .bytes = 1e9, .seconds = seconds}, kSeat);
  };
  EXPECT_EQ(of(0.1), Phase::kAccessIntensive);
  EXPECT_EQ(of(0.05), Phase::kAccessIntensive);
  EXPECT_EQ(of(0.03), Phase::kComputeBound) << "faster than memory: from caches";
  EXPECT_EQ(of(1), Phase::kComputeBound) << "uses a tenth of its share of the bandwidth";
}

TEST(Policy, GateLimitIsWhereBandwidthSaturates) {
  EXPECT_EQ(GateLimit({18, 34}), 2);
  EXPECT_EQ(GateLimit({20, 39, 55, 60, 62, 61}), 4);
  EXPECT_EQ(GateLimit({20, 22}), 1);
  EXPECT_EQ(GateLimit({20}), 1);
  EXPECT_EQ(GateLimit({}), 1);
}

TEST(Policy, OnlyGatesDecideAnything) {
  const GateState full = {.running = 1, .limit = 1};
  for (const SchedulePolicy policy :
       {SchedulePolicy::kBarriered, SchedulePolicy::kFree, SchedulePolicy::kStagger}) {
    EXPECT_EQ(Decide(policy, full, {.phase = Phase::kAccessIntensive, .deferred = true}),
              Action::kRun);
    EXPECT_EQ(Decide(policy, {.limit = 1}, {.deferrable = true}), Action::kRun);
  }
}

TEST(Policy, AccessIntensiveOpsNeedRoom) {
  const NextOp access = {.phase = Phase::kAccessIntensive};
  const NextOp with_work = {.phase = Phase::kAccessIntensive, .deferred = true};
  for (const SchedulePolicy policy : {SchedulePolicy::kGate, SchedulePolicy::kGateDefer}) {
    EXPECT_EQ(Decide(policy, {.running = 1, .limit = 2}, access), Action::kRun);
    EXPECT_EQ(Decide(policy, {.running = 2, .limit = 2}, access), Action::kWait);
    EXPECT_EQ(Decide(policy, {.running = 9, .limit = 0}, access), Action::kRun);
    EXPECT_EQ(Decide(policy, {.running = 2, .limit = 2}, NextOp{}), Action::kRun);
  }
  EXPECT_EQ(Decide(SchedulePolicy::kGateDefer, {.running = 2, .limit = 2}, with_work),
            Action::kRunDeferred);
  EXPECT_EQ(Decide(SchedulePolicy::kGate, {.running = 2, .limit = 2}, with_work), Action::kWait);
}

TEST(Policy, WeightGradientsArePutOffWhileThereIsRoom) {
  const NextOp weights = {.deferrable = true};
  const SchedulePolicy policy = SchedulePolicy::kGateDefer;
  EXPECT_EQ(Decide(policy, {.running = 0, .limit = 1}, weights), Action::kDefer);
  EXPECT_EQ(Decide(policy, {.running = 1, .limit = 1}, weights), Action::kRun);
  EXPECT_EQ(Decide(policy, {.running = 1, .limit = 0}, weights), Action::kRun) << "never waits";
  EXPECT_EQ(Decide(SchedulePolicy::kGate, {.running = 0, .limit = 1}, weights), Action::kRun);
}

TEST(Policy, WhoLosesHisCoreIsCrowded) {
  EXPECT_FALSE(Crowded(0));
  EXPECT_FALSE(Crowded(0.01));
  EXPECT_TRUE(Crowded(0.3));
}

TEST(Policy, StaggerSpreadsOverOnePass) {
  EXPECT_EQ(StaggerOp(0, 4, 100), 0);
  EXPECT_EQ(StaggerOp(1, 4, 100), 25);
  EXPECT_EQ(StaggerOp(3, 4, 100), 75);
}

}  // namespace
}  // namespace parax
