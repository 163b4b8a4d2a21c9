// Running statistics of batch norm: pooled over leaves and micro-batches.
#include <cmath>

#include "tests/gradserver/harness.h"

namespace parax::testing {
namespace {

constexpr int kMicro = 3;

int Batches(uint64_t t, int leaf) { return static_cast<int>(t + leaf) % (kMicro + 1); }
int Count(int leaf, int micro) { return 2 + leaf + micro; }

// The values that micro-batch normalises; the offset makes cancellation visible.
double Value(uint64_t t, int leaf, int micro, int64_t channel, int i) {
  return 100 + channel + 3 * Noise(t * 100 + micro, leaf, channel, i);
}

Outcome RunMomentLeaf(GradientServer& server, const ServerOptions& options, int leaf,
                      uint64_t iterations, uint64_t jitter) {
  Pauses pauses(jitter, leaf);
  for (uint64_t t = 1; t <= iterations; ++t) {
    const int batches = Batches(t, leaf);
    Outcome outcome = server.BeginIteration(leaf, t, 0.1, batches);
    if (outcome != Outcome::kOk) return outcome;
    for (int b = 0; b < server.buckets(); ++b) {
      outcome = server.AwaitBucket(leaf, b);
      if (outcome != Outcome::kOk) return outcome;
    }
    for (int m = 0; m < static_cast<int>(options.moments.size()); ++m) {
      for (int u = 0; u < batches; ++u) {
        const int n = Count(leaf, u);
        for (int64_t c = 0; c < options.moments[m].channels; ++c) {
          double mean = 0, squares = 0;
          for (int i = 0; i < n; ++i) mean += Value(t, leaf, u, c, i) / n;
          for (int i = 0; i < n; ++i) squares += std::pow(Value(t, leaf, u, c, i) - mean, 2);
          server.moment_mean(leaf, m, u)[c] = static_cast<float>(mean);
          server.moment_variance(leaf, m, u)[c] = static_cast<float>(squares / n);
        }
        server.SetMomentCount(leaf, m, u, n);
        pauses.Maybe();
      }
    }
    server.PublishMoments(leaf, batches);
    for (int b = 0; b < server.buckets(); ++b) server.Publish(leaf, b);
    outcome = server.EndIteration(leaf);
    if (outcome != Outcome::kOk) return outcome;
  }
  return server.Drain(leaf);
}

std::unique_ptr<Trained> RunMoments(int leaves, int domains, size_t slice, uint64_t jitter) {
  ServerOptions options = Options({16}, leaves, domains);
  options.moments = {{"a", 200, 0.1}, {"b", 3, 0.25}};
  options.max_micro_batches = kMicro;
  options.slice_bytes = slice;
  auto trained = std::make_unique<Trained>();
  trained->server = std::make_unique<GradientServer>(options, trained->stop);
  for (int m = 0; m < 2; ++m) {
    for (float& v : trained->server->running_variance(m)) v = 1;
  }
  ExpectAllOk(
      RunLeaves(leaves,
                [&](int l) { return RunMomentLeaf(*trained->server, options, l, 9, jitter); }),
      trained->stop);
  for (int m = 0; m < 2; ++m) {
    for (const float x : trained->server->running_mean(m)) trained->weights.push_back(x);
    for (const float x : trained->server->running_variance(m)) trained->weights.push_back(x);
  }
  return trained;
}

class MomentLeaves : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(, MomentLeaves, ::testing::Values(1, 2, 5));

TEST_P(MomentLeaves, PooledOverAllValuesOfAnIteration) {
  const int leaves = GetParam();
  const auto trained = RunMoments(leaves, 1, 1 << 17, 3);
  const double momentum[] = {0.1, 0.25};
  const int64_t channels[] = {200, 3};
  for (int m = 0; m < 2; ++m) {
    for (int64_t c = 0; c < channels[m]; ++c) {
      double running_mean = 0, running_variance = 1;
      for (uint64_t t = 1; t <= 9; ++t) {
        double n = 0, mean = 0, squares = 0;
        const auto each = [&](auto&& body) {
          for (int l = 0; l < leaves; ++l) {
            for (int u = 0; u < Batches(t, l); ++u) {
              for (int i = 0; i < Count(l, u); ++i) body(Value(t, l, u, c, i));
            }
          }
        };
        each([&](double x) { mean += x, ++n; });
        if (n == 0) continue;
        mean /= n;
        each([&](double x) { squares += (x - mean) * (x - mean); });
        running_mean += momentum[m] * (mean - running_mean);
        running_variance += momentum[m] * (squares / (n - 1) - running_variance);
      }
      ASSERT_NEAR(trained->server->running_mean(m)[c], running_mean, 1e-6 * running_mean);
      ASSERT_NEAR(trained->server->running_variance(m)[c], running_variance, 1e-4);
    }
  }
}

TEST(Moments, SameBitsWhateverTimingSlicesAndDomains) {
  const auto base = RunMoments(5, 1, 1 << 17, 0);
  EXPECT_EQ(RunMoments(5, 2, 1, 11)->weights, base->weights);
  EXPECT_EQ(RunMoments(5, 4, 20'000, 12)->weights, base->weights);
}

TEST(Moments, OneValueAloneKeepsItsVariance) {
  ServerOptions options = Options({16}, 1);
  options.moments = {{"a", 1, 0.5}};
  StopFlag stop;
  GradientServer server(options, stop);
  ASSERT_EQ(server.BeginIteration(0, 1, 0.1, 1), Outcome::kOk);
  server.moment_mean(0, 0, 0)[0] = 6;
  server.moment_variance(0, 0, 0)[0] = 0;
  server.SetMomentCount(0, 0, 0, 1);
  server.PublishMoments(0, 1);
  server.Publish(0, 0);
  ASSERT_EQ(server.Drain(0), Outcome::kOk);
  EXPECT_EQ(server.running_mean(0)[0], 3);
  EXPECT_EQ(server.running_variance(0)[0], 0);
}

}  // namespace
}  // namespace parax::testing
