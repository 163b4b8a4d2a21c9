#include "parax/sched/scheduler.h"

#include <gtest/gtest.h>

#include <thread>

namespace parax {
namespace {

constexpr NextOp kAccess = {.phase = Phase::kAccessIntensive};

SchedulerOptions Gated(int leaves, int limit) {
  return {.policy = SchedulePolicy::kGate,
          .leaf_domain = std::vector<int>(static_cast<size_t>(leaves), 0),
          .limit = {limit}};
}

TEST(Scheduler, NeverMoreThanTheLimitAtOnce) {
  constexpr int kLeaves = 4, kLimit = 2, kRounds = 3000;
  StopFlag stop;
  Scheduler scheduler(Gated(kLeaves, kLimit), stop);
  std::atomic<int> inside{0}, most{0}, passed{0};
  std::vector<std::jthread> threads;
  for (int leaf = 0; leaf < kLeaves; ++leaf) {
    threads.emplace_back([&, leaf] {
      for (int round = 0; round < kRounds; ++round) {
        while (scheduler.Next(leaf, kAccess) != Action::kRun) {
          ASSERT_EQ(scheduler.AwaitRoom(leaf), Outcome::kOk);
        }
        const GatePlace place(&scheduler, leaf);
        const int now = ++inside;
        int before = most;
        while (before < now && !most.compare_exchange_weak(before, now)) {
        }
        if (round % 100 == leaf) std::this_thread::yield();
        ++passed;
        --inside;
      }
    });
  }
  threads.clear();
  EXPECT_LE(most, kLimit);
  EXPECT_EQ(passed, kLeaves * kRounds);
}

TEST(Scheduler, WakesWhoeverSleepsAtTheGate) {
  StopFlag stop;
  Scheduler scheduler(Gated(3, 1), stop);
  ASSERT_EQ(scheduler.Next(0, kAccess), Action::kRun);
  EXPECT_EQ(scheduler.Next(1, kAccess), Action::kWait);
  std::vector<std::jthread> threads;
  for (const int leaf : {1, 2}) {
    threads.emplace_back([&, leaf] {
      while (scheduler.Next(leaf, kAccess) != Action::kRun) {
        EXPECT_EQ(scheduler.AwaitRoom(leaf), Outcome::kOk);
      }
      scheduler.Leave(leaf);
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  scheduler.Leave(0);
}

TEST(Scheduler, DomainsHaveGatesOfTheirOwn) {
  StopFlag stop;
  Scheduler scheduler(
      {.policy = SchedulePolicy::kGate, .leaf_domain = {0, 0, 1, 1}, .limit = {1, 1}}, stop);
  EXPECT_EQ(scheduler.Next(0, kAccess), Action::kRun);
  EXPECT_EQ(scheduler.Next(1, kAccess), Action::kWait);
  EXPECT_EQ(scheduler.Next(2, kAccess), Action::kRun);
  EXPECT_EQ(scheduler.Next(3, kAccess), Action::kWait);
  scheduler.Leave(0);
  EXPECT_EQ(scheduler.Next(3, kAccess), Action::kWait);
  EXPECT_EQ(scheduler.Next(1, kAccess), Action::kRun);
}

TEST(Scheduler, ACrowdedLeafOpensItsDomainsGate) {
  StopFlag stop;
  Scheduler scheduler(
      {.policy = SchedulePolicy::kGateDefer, .leaf_domain = {0, 0, 0, 1, 1}, .limit = {1, 1}},
      stop);
  const auto look = [&](double second_lost) {
    for (const int leaf : {1, 0, 2, 3, 4}) scheduler.Lost(leaf, leaf == 1 ? second_lost : 0);
  };
  look(0.5);
  for (const int leaf : {0, 1, 2}) {
    EXPECT_EQ(scheduler.Next(leaf, kAccess), Action::kRun);
    EXPECT_EQ(scheduler.Next(leaf, {.deferrable = true}), Action::kRun) << "nothing to wait for";
    EXPECT_EQ(scheduler.AwaitRoom(leaf), Outcome::kOk);
  }
  EXPECT_EQ(scheduler.Next(3, kAccess), Action::kRun);
  EXPECT_EQ(scheduler.Next(4, kAccess), Action::kWait) << "another domain";
  for (const int leaf : {0, 1, 2}) scheduler.Leave(leaf);
  look(0);
  EXPECT_EQ(scheduler.Next(0, kAccess), Action::kRun);
  EXPECT_EQ(scheduler.Next(1, kAccess), Action::kWait) << "given back what nobody had";
  scheduler.Leave(0);
  EXPECT_EQ(scheduler.Next(2, kAccess), Action::kRun);
}

TEST(Scheduler, PlacesForAllAreNoGate) {
  StopFlag stop;
  Scheduler scheduler(Gated(2, 2), stop);
  EXPECT_FALSE(scheduler.gated(0));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(scheduler.Next(0, kAccess), Action::kRun);
}

TEST(Scheduler, WaitsEndWithTheStopFlagAndTheDeadline) {
  for (const bool stopped : {true, false}) {
    StopFlag stop;
    SchedulerOptions options = Gated(2, 1);
    options.wait_timeout = std::chrono::milliseconds(stopped ? 100000 : 1);
    Scheduler scheduler(options, stop);
    ASSERT_EQ(scheduler.Next(0, kAccess), Action::kRun);
    std::jthread stopper([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (stopped) stop.Request();
    });
    EXPECT_EQ(scheduler.AwaitRoom(1), stopped ? Outcome::kStopped : Outcome::kTimeout);
    EXPECT_EQ(stop.outcome(), stopped ? Outcome::kStopped : Outcome::kTimeout);
  }
}

TEST(Scheduler, StaggerHoldsBackFirstPassesOnly) {
  StopFlag stop;
  Scheduler scheduler({.policy = SchedulePolicy::kStagger, .leaf_domain = {0, 0}, .limit = {1}},
                      stop);
  std::atomic<int> reached{-1};
  std::jthread second([&] {
    for (int pass = 0; pass < 2; ++pass) {
      EXPECT_EQ(scheduler.Stagger(1, 0, 10), Outcome::kOk);
      EXPECT_GE(reached.load(), 5);
    }
  });
  for (int op = 0; op < 10; ++op) {
    reached = op;
    EXPECT_EQ(scheduler.Stagger(0, op, 10), Outcome::kOk);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace
}  // namespace parax
