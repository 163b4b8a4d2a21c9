// Sums of gradients: exact against naive references, the same bits whatever the timing.
#include <cmath>

#include "tests/gradserver/harness.h"

namespace parax::testing {
namespace {

const std::vector<size_t> kSizes{1, 3, 17, 4095, 4096, 4097, 10'007, 64, 64, 5};

#ifdef __SANITIZE_THREAD__
constexpr uint64_t kMany = 6;
#else
constexpr uint64_t kMany = 40;
#endif

class Leaves : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(, Leaves, ::testing::Values(1, 2, 3, 5, 8));

TEST_P(Leaves, IntegersAddUpExactly) {
  const int leaves = GetParam();
  ServerOptions options = Options(kSizes, leaves);
  options.optimizer.momentum = 0;
  options.policy = UpdatePolicy::kEager;
  Job job{.iterations = kMany, .rate = 1, .jitter = 5};
  job.gradient = [](uint64_t t, int l, int p, size_t i) {
    return static_cast<float>((t * 7 + l * 3 + p + i) % 32) - 16;
  };
  job.weight = [&](uint64_t, int l) { return l == 0 ? 16.0 - (leaves - 1) : 1; };
  const auto trained = Train(options, job);
  ExpectAllOk(trained->outcomes, trained->stop);
  size_t at = 0;
  for (int p = 0; p < static_cast<int>(kSizes.size()); ++p) {
    for (size_t i = 0; i < kSizes[p]; ++i, ++at) {
      float w = InitialWeight(p, i);
      for (uint64_t t = 1; t <= kMany; ++t) {
        float sum = 0;
        for (int l = 0; l < leaves; ++l) sum += job.gradient(t, l, p, i);
        w = w - sum / 16;
      }
      ASSERT_EQ(trained->weights[at], w) << "parameter " << p << " element " << i;
    }
  }
}

TEST_P(Leaves, OrderIsByLeafNumberAndAbsentLeavesAreSkipped) {
  const int leaves = GetParam();
  ServerOptions options = Options(kSizes, leaves);
  options.reduce_group = 2;
  Job job{.iterations = kMany, .jitter = 9};
  // Uneven; now and then nobody but one leaf has samples (case I).
  job.samples = [&](uint64_t t, int l) {
    if (t % 4 == 3) return int64_t{l == static_cast<int>(t) % leaves};
    return static_cast<int64_t>(l == 0 ? 3 : (t + l) % 3);
  };
  const auto trained = Train(options, job);
  ExpectAllOk(trained->outcomes, trained->stop);
  const float rate = 0.1f, momentum = 0.9f;
  size_t at = 0;
  for (int p = 0; p < static_cast<int>(kSizes.size()); ++p) {
    for (size_t i = 0; i < kSizes[p]; ++i, ++at) {
      if (i % 7 != 0 && i + 3 < kSizes[p]) continue;
      float w = InitialWeight(p, i), buffer = 0;
      for (uint64_t t = 1; t <= kMany; ++t) {
        buffer = momentum * buffer + ReferenceMean(job, t, leaves, 2, p, i);
        w = w - rate * buffer;
      }
      ASSERT_EQ(trained->weights[at], w) << "parameter " << p << " element " << i;
    }
  }
}

TEST(Sums, SameBitsWhateverTimingDomainsBucketsSlicesAndPolicy) {
  ServerOptions options = Options(kSizes, 5);
  options.ema_decay = 0.9;
  options.optimizer.kind = OptimizerKind::kAdamW;
  options.optimizer.weight_decay = 0.1;
  Job job{.iterations = 8, .rate = 0.01};
  const auto base = Train(options, job);
  ExpectAllOk(base->outcomes, base->stop);
  int runs = 0;
  for (const int domains : {1, 2, 4}) {
    for (const size_t bucket : {size_t{100}, size_t{100'000}}) {
      for (const size_t slice : {size_t{1}, size_t{50'000}}) {
        for (const UpdatePolicy policy : {UpdatePolicy::kEager, UpdatePolicy::kCommit}) {
          ServerOptions other = Options(kSizes, 5, domains);
          other.ema_decay = options.ema_decay;
          other.optimizer = options.optimizer;
          other.bucket_bytes = bucket;
          other.slice_bytes = slice;
          other.policy = policy;
          job.jitter = ++runs;
          const auto run = Train(other, job);
          ExpectAllOk(run->outcomes, run->stop);
          ASSERT_EQ(run->weights, base->weights) << "run " << runs;
          ASSERT_EQ(run->ema, base->ema) << "run " << runs;
          for (int p = 0; p < static_cast<int>(kSizes.size()); ++p) {
            for (int d = 0; d < domains; ++d) {
              for (size_t i = 0; i < kSizes[p]; ++i) {
                ASSERT_EQ(FloatForm(*run->server, d, p, 0)[i], run->server->master(p)[i]);
                ASSERT_EQ(FloatForm(*run->server, d, p, 1)[kSizes[p] - 1 - i],
                          run->server->master(p)[i]);
              }
            }
          }
        }
      }
    }
  }
}

TEST(Sums, MoreDomainsThanLeavesUseThemAll) {
  ServerOptions options = Options(kSizes, 2, 4);  // domains 2 and 3 have no leaves
  options.slice_bytes = 1;
  const auto trained = Train(options, {.iterations = 3});
  ExpectAllOk(trained->outcomes, trained->stop);
  EXPECT_EQ(FloatForm(*trained->server, 3, 6, 0)[10'006], trained->server->master(6)[10'006]);
}

TEST(Sums, ManySmallBucketsPassOneWordOfTheSummary) {
  ServerOptions options = Options(std::vector<size_t>(700, 3), 3, 2);
  options.bucket_bytes = 1;
  const auto trained = Train(options, {.iterations = 3, .jitter = 3});
  ExpectAllOk(trained->outcomes, trained->stop);
  EXPECT_EQ(trained->server->buckets(), 700);
  ServerOptions one = Options(std::vector<size_t>(700, 3), 3);
  one.bucket_bytes = 1 << 20;
  EXPECT_EQ(trained->weights, Train(one, {.iterations = 3})->weights);
}

// Case J: losses {2} and {1, 1, 1} have the mean 1.25, not the mean of means.
TEST(Sums, MeanIsOverWeightsNotLeaves) {
  ServerOptions options = Options({1}, 2);
  options.optimizer.momentum = 0;
  Job job{.iterations = 1, .rate = 1};
  job.gradient = [](uint64_t, int l, int, size_t) { return l == 0 ? 2.f : 3.f; };
  job.samples = [](uint64_t, int l) { return l == 0 ? 1 : 3; };
  EXPECT_EQ(Train(options, job)->weights[0], InitialWeight(0, 0) - 1.25f);
  job.samples = [](uint64_t, int) { return 9; };
  job.weight = [](uint64_t, int l) { return l == 0 ? 0.5 : 1.5; };
  EXPECT_EQ(Train(options, job)->weights[0], InitialWeight(0, 0) - 2.5f);
}

// Case I: one sample for eight leaves.
TEST(Sums, SlotOfALeafWithoutSamplesIsNotRead) {
  ServerOptions options = Options({33}, 8);
  options.optimizer.momentum = 0;
  StopFlag stop;
  GradientServer server(options, stop);
  for (int l = 0; l < 8; ++l) {
    for (int i = 0; i < 33; ++i) server.gradient(l, 0)[i] = std::nanf("");
  }
  Job job{.iterations = 3, .rate = 1};
  job.samples = [](uint64_t t, int l) { return int64_t{l == static_cast<int>(t) + 2}; };
  job.gradient = [](uint64_t, int, int, size_t) { return 0.5f; };
  ExpectAllOk(RunLeaves(8, [&](int l) { return RunLeaf(server, options, job, l); }), stop);
  for (const float w : server.master(0)) EXPECT_EQ(w, -1.5f);
}

TEST(Sums, NobodyHasSamples) {
  ServerOptions options = Options({5000, 3}, 3);
  Job job{.iterations = 4};
  job.samples = [](uint64_t, int) { return 0; };
  const auto trained = Train(options, job);
  ExpectAllOk(trained->outcomes, trained->stop);
  EXPECT_EQ(trained->weights[17], InitialWeight(0, 17));
}

TEST(Sums, PaddingLanesStayZero) {
  // Master elements 3, 7, 11 ... are padding: the copy does not hold them.
  std::vector<uint32_t> position(400);
  for (uint32_t i = 0; i < 400; ++i) position[i] = i % 4 == 3 ? IndexMap::kNone : i / 4 * 3 + i % 4;
  for (const OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW, OptimizerKind::kLars}) {
    ServerOptions options = Options({400}, 2);
    options.parameters[0].forms[1] = CompressIndexMap(position, 400);
    options.optimizer.kind = kind;
    options.optimizer.weight_decay = 0.1;
    options.ema_decay = 0.5;
    StopFlag stop;
    GradientServer server(options, stop);
    for (size_t i = 0; i < 400; ++i) server.master(0)[i] = i % 4 == 3 ? 0 : 1;
    Job job{.iterations = 3};
    job.gradient = [](uint64_t t, int l, int p, size_t i) {
      return i % 4 == 3 ? 0 : Noise(t, l, p, i);
    };
    server.RefreshForms();
    ExpectAllOk(RunLeaves(2, [&](int l) { return RunLeaf(server, options, job, l); }), stop);
    for (size_t i = 0; i < 400; ++i) {
      const float w = server.master(0)[i];
      if (i % 4 == 3) {
        ASSERT_EQ(w, 0);
        ASSERT_EQ(server.ema(0)[i], 0);
      } else {
        ASSERT_NE(w, 1);
        ASSERT_EQ(FloatForm(server, 0, 0, 1)[position[i]], w);
      }
    }
    for (size_t i = 300; i < 400; ++i) ASSERT_EQ(FloatForm(server, 0, 0, 1)[i], 0);
  }
}

}  // namespace
}  // namespace parax::testing
