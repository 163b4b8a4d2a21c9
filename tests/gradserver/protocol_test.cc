// Starting, resuming, stopping, timing out, the order of tasks.
#include <atomic>

#include "parax/base/bell.h"
#include "parax/base/error.h"
#include "tests/gradserver/harness.h"

namespace parax::testing {
namespace {

TEST(Protocol, ResumingGivesTheSameBits) {
  ServerOptions options = Options({5000, 33, 9001}, 3, 2);
  options.optimizer.kind = OptimizerKind::kAdam;  // its bias correction counts iterations
  options.ema_decay = 0.9;
  const auto whole = Train(options, {.iterations = 7});
  const auto half = Train(options, {.iterations = 4});
  StopFlag stop;
  GradientServer server(options, stop);
  for (int p = 0; p < 3; ++p) {
    const auto copy = [](std::span<float> from, std::span<float> to) {
      std::copy(from.begin(), from.end(), to.begin());
    };
    copy(half->server->master(p), server.master(p));
    copy(half->server->ema(p), server.ema(p));
    for (int s = 0; s < 2; ++s) copy(half->server->state(p, s), server.state(p, s));
  }
  server.StartAt(4);
  server.RefreshForms();
  Job job{.first = 5, .iterations = 3, .jitter = 8};
  ExpectAllOk(RunLeaves(3, [&](int l) { return RunLeaf(server, options, job, l); }), stop);
  size_t at = 0;
  for (int p = 0; p < 3; ++p) {
    for (size_t i = 0; i < server.master(p).size(); ++i, ++at) {
      ASSERT_EQ(server.master(p)[i], whole->weights[at]);
      ASSERT_EQ(server.ema(p)[i], whole->ema[at]);
    }
  }
}

TEST(Protocol, StopEndsEveryWait) {
  ServerOptions options = Options({5000, 33}, 3);
  StopFlag stop;
  GradientServer server(options, stop);
  std::atomic<int> waiting{0};
  std::vector<Outcome> outcomes;
  std::thread runner([&] {
    // Leaf 2 never comes; the others wait for its gradients.
    outcomes = RunLeaves(2, [&](int l) {
      ++waiting;
      return RunLeaf(server, options, {.iterations = 9}, l);
    });
  });
  while (waiting < 2) std::this_thread::yield();
  stop.Request();
  runner.join();
  for (const Outcome outcome : outcomes) EXPECT_EQ(outcome, Outcome::kStopped);
}

TEST(Protocol, TimeoutNamesTheLeafThatDidNotCome) {
  for (const UpdatePolicy policy : {UpdatePolicy::kEager, UpdatePolicy::kCommit}) {
    ServerOptions options = Options({5000, 33, 20'000}, 3);
    options.policy = policy;
    options.wait_timeout = std::chrono::milliseconds(50);
    StopFlag stop;
    GradientServer server(options, stop);
    const auto outcomes = RunLeaves(3, [&](int l) {
      return l == 1 ? Outcome::kOk : RunLeaf(server, options, {.iterations = 9}, l);
    });
    EXPECT_TRUE(outcomes[0] == Outcome::kTimeout || outcomes[2] == Outcome::kTimeout);
    EXPECT_EQ(stop.outcome(), Outcome::kTimeout);
    EXPECT_NE(stop.Reason().find("gradients of leaf 1"), std::string::npos) << stop.Reason();
  }
}

TEST(Protocol, TimeoutNamesTheRunningStatistics) {
  ServerOptions options = Options({16}, 2);
  options.moments.push_back({"bn", 4, 0.1});
  options.wait_timeout = std::chrono::milliseconds(50);
  StopFlag stop;
  GradientServer server(options, stop);
  const auto outcomes = RunLeaves(2, [&](int l) {
    EXPECT_EQ(server.BeginIteration(l, 1, 0.1, 1), Outcome::kOk);
    server.Publish(l, 0);
    if (l == 0) server.PublishMoments(l, 0);
    return server.Drain(l);
  });
  EXPECT_NE(outcomes[0], Outcome::kOk);
  EXPECT_NE(stop.Reason().find("running statistics of iteration 1"), std::string::npos)
      << stop.Reason();
}

// A leaf without samples runs ahead of the others and still publishes nothing too early.
TEST(Protocol, LeafWithoutSamplesWaitsForTheUpdateBefore) {
  ServerOptions options = Options({50}, 2);
  StopFlag stop;
  GradientServer server(options, stop);
  ASSERT_EQ(server.BeginIteration(1, 1, 0.1, 0), Outcome::kOk);
  server.Publish(1, 0);
  std::atomic<bool> begun{false};
  std::thread ahead([&] {
    EXPECT_EQ(server.BeginIteration(1, 2, 0.1, 0), Outcome::kOk);
    begun = true;
  });
  ASSERT_EQ(server.BeginIteration(0, 1, 0.1, 1), Outcome::kOk);
  ASSERT_EQ(server.AwaitBucket(0, 0), Outcome::kOk);
  EXPECT_FALSE(begun);
  server.Publish(0, 0);
  EXPECT_EQ(server.Drain(0), Outcome::kOk);
  ahead.join();
  EXPECT_TRUE(begun);
}

TEST(Protocol, LowestLayersAreServedFirst) {
  ServerOptions options = Options({100, 100, 100}, 1);
  options.bucket_bytes = 1;
  options.policy = UpdatePolicy::kEager;
  StopFlag stop;
  GradientServer server(options, stop);
  ASSERT_EQ(server.BeginIteration(0, 1, 1, 1), Outcome::kOk);
  for (int p = 0; p < 3; ++p) server.gradient(0, p)[0] = 1;
  for (int b = 0; b < 3; ++b) server.Publish(0, b);
  for (int p = 2; p >= 0; --p) {
    EXPECT_EQ(server.master(p)[0], 0);
    ASSERT_EQ(server.Help(0), Outcome::kOk);  // one slice each
    EXPECT_EQ(server.master(p)[0], -1);
  }
}

TEST(Protocol, LeavesRunSlicesOfTheirOwnDomainOnly) {
  ServerOptions options = Options({4096, 4096}, 2, 2);
  options.bucket_bytes = 1;  // slice 0 belongs to domain 0, slice 1 to domain 1
  options.policy = UpdatePolicy::kEager;
  StopFlag stop;
  GradientServer server(options, stop);
  for (int l = 0; l < 2; ++l) ASSERT_EQ(server.BeginIteration(l, 1, 1, 1), Outcome::kOk);
  server.gradient(0, 0)[0] = server.gradient(0, 1)[0] = 2;
  for (int l = 0; l < 2; ++l) {
    for (int b = 0; b < 2; ++b) server.Publish(l, b);
  }
  for (int i = 0; i < 5; ++i) ASSERT_EQ(server.Help(0), Outcome::kOk);
  EXPECT_EQ(server.master(0)[0], -1);
  EXPECT_EQ(server.master(1)[0], 0);
  ASSERT_EQ(server.Help(1), Outcome::kOk);
  EXPECT_EQ(server.master(1)[0], -1);
}

TEST(Protocol, WrongOptionsAreRefused) {
  StopFlag stop;
  ServerOptions options = Options({4}, 2);
  options.leaf_domain[1] = 1;
  EXPECT_THROW(GradientServer(options, stop), UsageError);
  options = Options({4}, 2);
  options.leaf_domain.clear();
  EXPECT_THROW(GradientServer(options, stop), UsageError);
  options = Options({4}, 2);
  options.parameters[0].elements = 5;  // its forms cover 4
  EXPECT_THROW(GradientServer(options, stop), Error);
}

TEST(BellTest, RingBetweenLookAndSleepIsNotLost) {
  Bell bell;
  const uint32_t seen = bell.count();
  bell.Ring();
  const Clock::time_point start = Clock::now();
  bell.Wait(seen, std::chrono::seconds(30));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace parax::testing
