// The commit record: clipping, finite check; what must not depend on the policy.
#include <cmath>

#include "parax/base/error.h"
#include "tests/gradserver/harness.h"

namespace parax::testing {
namespace {

TEST(Commit, ClipsByTheGlobalNormOfTheMean) {
  const std::vector<size_t> sizes{5000, 33};
  ServerOptions options = Options(sizes, 3, 2);
  options.optimizer.momentum = 0;
  options.clip_norm = 0.5;
  Job job{.iterations = 1, .rate = 1};
  const auto clipped = Train(options, job);
  ExpectAllOk(clipped->outcomes, clipped->stop);
  double squares = 0;
  for (int p = 0; p < 2; ++p) {
    for (size_t i = 0; i < sizes[p]; ++i) squares += std::pow(ReferenceMean(job, 1, 3, 4, p, i), 2);
  }
  const CommitRecord record = clipped->server->record(1);
  EXPECT_EQ(record.iteration, 1u);
  EXPECT_NEAR(record.gradient_norm, std::sqrt(squares), 1e-9);
  EXPECT_NEAR(record.clip_factor, 0.5 / (std::sqrt(squares) + 1e-6), 1e-12);
  const float factor = static_cast<float>(record.clip_factor);
  EXPECT_EQ(clipped->weights[7], InitialWeight(0, 7) - ReferenceMean(job, 1, 3, 4, 0, 7) * factor);
  // A norm below the limit: nothing changes, bit for bit.
  options.clip_norm = 1e6;
  const auto loose = Train(options, job);
  EXPECT_EQ(loose->server->record(1).clip_factor, 1);
  options.clip_norm = 0;
  EXPECT_EQ(Train(options, job)->weights, loose->weights);
}

TEST(Commit, RecordsAreKeptForEightIterations) {
  const auto trained = Train(Options({100}, 2), {.iterations = 12});
  for (uint64_t t = 5; t <= 12; ++t) {
    EXPECT_EQ(trained->server->record(t).iteration, t);
    EXPECT_GT(trained->server->record(t).gradient_norm, 0);
  }
  EXPECT_EQ(trained->server->record(4).iteration, 0u);   // gone
  EXPECT_EQ(trained->server->record(13).iteration, 0u);  // to come
}

TEST(Commit, NotFiniteStopsBeforeAnyUpdate) {
  for (const float bad : {std::nanf(""), INFINITY}) {
    ServerOptions options = Options({3000, 20, 9000, 5, 12'000}, 3, 2);
    Job job{.iterations = 6, .jitter = 4};
    const auto good = job.gradient;
    // In iteration 3 parameters 1 and 3 go wrong; 3 stands first in forward order.
    job.gradient = [&](uint64_t t, int l, int p, size_t i) {
      return t == 3 && l == 1 && (p == 1 || p == 3) && i == 4 ? bad : good(t, l, p, i);
    };
    const auto trained = Train(options, job);
    EXPECT_EQ(trained->stop.outcome(), Outcome::kNotFinite);
    EXPECT_NE(trained->stop.Reason().find("gradient of parameter 3"), std::string::npos)
        << trained->stop.Reason();
    for (const Outcome outcome : trained->outcomes) EXPECT_NE(outcome, Outcome::kOk);
    EXPECT_EQ(trained->weights, Train(options, {.iterations = 2})->weights);
  }
}

TEST(Commit, SumThatOverflowsIsNotFinite) {
  ServerOptions options = Options({10}, 2);
  Job job{.iterations = 1};
  job.gradient = [](uint64_t, int, int, size_t) { return 3e38f; };
  EXPECT_EQ(Train(options, job)->stop.outcome(), Outcome::kNotFinite);
}

TEST(Policy, ClippingNeedsCommit) {
  ServerOptions options = Options({10}, 1);
  options.policy = UpdatePolicy::kEager;
  options.clip_norm = 1;
  StopFlag stop;
  EXPECT_THROW(GradientServer(options, stop), UsageError);
}

TEST(Policy, EveryOptimizerGivesTheSameBitsUnderBoth) {
  for (const OptimizerOptions& optimizer :
       {OptimizerOptions{.momentum = 0}, OptimizerOptions{.nesterov = true, .weight_decay = 0.1},
        OptimizerOptions{.kind = OptimizerKind::kAdam, .weight_decay = 0.1}}) {
    ServerOptions options = Options({4100, 7, 300}, 3);
    options.optimizer = optimizer;
    options.policy = UpdatePolicy::kEager;
    const auto eager = Train(options, {.iterations = 5, .jitter = 1});
    EXPECT_EQ(eager->server->record(5).clip_factor, 1);
    options.policy = UpdatePolicy::kCommit;
    EXPECT_EQ(Train(options, {.iterations = 5, .jitter = 2})->weights, eager->weights);
  }
}

}  // namespace
}  // namespace parax::testing
