// Update loops: the same bits on every instruction set; LARS and EMA against double references.
#include "parax/gradserver/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "parax/base/error.h"
#include "parax/gradserver/kernels_internal.h"
#include "tests/gradserver/harness.h"

namespace parax::testing {
namespace {

std::vector<float> Random(uint64_t what, size_t n) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = Noise(what, 1, 2, i);
  return values;
}

// All loops over odd lengths, results in one array.
std::vector<double> RunAll(const Kernels& kernels) {
  std::vector<double> results;
  const auto keep = [&](const std::vector<float>& values) {
    results.insert(results.end(), values.begin(), values.end());
  };
  const Coefficients c{.clip = 0.7f,
                       .rate = 0.03f,
                       .momentum = 0.9f,
                       .decay = 0.01f,
                       .keep = 0.99f,
                       .one_minus_beta1 = 0.1f,
                       .beta2 = 0.98f,
                       .one_minus_beta2 = 0.02f,
                       .inverse_root = 3.1f,
                       .epsilon = 1e-7f};
  for (const size_t n : {1, 7, 8, 15, 16, 17, 31, 33, 64, 100, 4096, 1027}) {
    const std::vector<float> a = Random(1, n), b = Random(2, n);
    std::vector<float> out(n);
    kernels.add(out.data(), a.data(), b.data(), n);
    keep(out);
    kernels.add(out.data(), out.data(), b.data(), n);  // in place, as reductions do
    keep(out);
    kernels.scale(out.data(), a.data(), 1 / 3.f, n);
    keep(out);
    results.push_back(kernels.square_sum(a.data(), n));
    out = b;
    kernels.ema(out.data(), a.data(), 0.01f, n);
    keep(out);
    for (const Kernels::Update update :
         {kernels.sgd, kernels.sgd_momentum, kernels.sgd_nesterov, kernels.adam, kernels.lars}) {
      std::vector<float> w = Random(3, n), s0 = Random(4, n), s1 = Random(5, n);
      for (float& s : s1) s = std::fabs(s);
      update(w.data(), s0.data(), s1.data(), a.data(), n, c);
      keep(w);
      keep(s0);
      keep(s1);
    }
  }
  return results;
}

TEST(Kernels, SameBitsOnEveryInstructionSet) {
  const std::vector<double> baseline = RunAll(KernelsAt(Isa::kBaseline));
  for (const Isa level : {Isa::kAvx2, Isa::kAvx512}) {
    if (level <= CurrentIsa()) {
      EXPECT_EQ(RunAll(KernelsAt(level)), baseline);
    }
  }
}

TEST(Kernels, SquareSumIsInDouble) {
  const std::vector<float> a = Random(1, 4099);
  double sum = 0;
  for (const float x : a) sum += double{x} * x;
  EXPECT_NEAR(KernelsAt(CurrentIsa()).square_sum(a.data(), a.size()), sum, 1e-12 * sum);
}

double RelativeError(const std::vector<float>& got, const std::vector<double>& expected) {
  double error = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += (got[i] - expected[i]) * (got[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(error / size);
}

// You, Gitman, Ginsburg 2017, algorithm 1: v = m v + rate * local (g + decay w); w = w - v;
// equation 6: local = trust |w| / (|g| + decay |w|). The second parameter is exempt.
TEST(LarsGolden, FollowsThePaperUnderBothPolicies) {
  const std::vector<size_t> sizes{5000, 33, 9001};
  const double rate = 0.5, momentum = 0.9, decay = 0.05, trust = 0.02;
  Job job{.iterations = 6, .rate = rate, .jitter = 2};
  std::vector<double> expected;
  for (int p = 0; p < 3; ++p) {
    std::vector<double> w(sizes[p]), v(sizes[p]), g(sizes[p]);
    for (size_t i = 0; i < w.size(); ++i) w[i] = InitialWeight(p, i);
    for (uint64_t t = 1; t <= job.iterations; ++t) {
      double w_squares = 0, g_squares = 0;
      for (size_t i = 0; i < w.size(); ++i) {
        g[i] = (double{job.gradient(t, 0, p, i)} + job.gradient(t, 1, p, i)) / 8;
        w_squares += w[i] * w[i];
        g_squares += g[i] * g[i];
      }
      const double w_norm = std::sqrt(w_squares), g_norm = std::sqrt(g_squares);
      const double local = p == 1 ? 1 : trust * w_norm / (g_norm + decay * w_norm);
      for (size_t i = 0; i < w.size(); ++i) {
        v[i] = momentum * v[i] + rate * local * (g[i] + (p == 1 ? 0 : decay) * w[i]);
        w[i] -= v[i];
      }
    }
    expected.insert(expected.end(), w.begin(), w.end());
  }
  std::vector<float> bits;
  for (const UpdatePolicy policy : {UpdatePolicy::kEager, UpdatePolicy::kCommit}) {
    ServerOptions options = Options(sizes, 2, 2);
    options.policy = policy;
    options.optimizer = {
        .kind = OptimizerKind::kLars, .momentum = momentum, .weight_decay = decay, .trust = trust};
    options.parameters[1].decay = false;
    const auto trained = Train(options, job);
    ExpectAllOk(trained->outcomes, trained->stop);
    EXPECT_LE(RelativeError(trained->weights, expected), 1e-6);
    if (bits.empty()) bits = trained->weights;
    EXPECT_EQ(trained->weights, bits);
  }
}

TEST(Lars, ZeroTensorMoves) {
  ServerOptions options = Options({8}, 1);
  options.optimizer = {.kind = OptimizerKind::kLars, .momentum = 0};
  StopFlag stop;
  GradientServer server(options, stop);
  Job job{.iterations = 1, .rate = 1};
  job.gradient = [](uint64_t, int, int, size_t) { return 1.f; };
  EXPECT_EQ(RunLeaf(server, options, job, 0), Outcome::kOk);
  EXPECT_EQ(server.master(0)[0], -0.25f);
}

TEST(EmaGolden, AveragesTheWeightsFromTheInitialOnes) {
  for (const UpdatePolicy policy : {UpdatePolicy::kEager, UpdatePolicy::kCommit}) {
    ServerOptions options = Options({4100, 7}, 3, 2);
    options.policy = policy;
    options.optimizer.momentum = 0;
    options.ema_decay = policy == UpdatePolicy::kEager ? 0.9997 : 0.7;  // reached at t = 20
    Job job{.iterations = 50};
    const auto trained = Train(options, job);
    ExpectAllOk(trained->outcomes, trained->stop);
    std::vector<double> expected;
    for (int p = 0; p < 2; ++p) {
      for (size_t i = 0; i < options.parameters[p].elements; ++i) {
        double w = InitialWeight(p, i), ema = w;
        for (uint64_t t = 1; t <= job.iterations; ++t) {
          double sum = 0;
          for (int l = 0; l < 3; ++l) sum += job.gradient(t, l, p, i);
          w -= 0.1 * sum / 12;
          const double decay = std::min(options.ema_decay, (1.0 + t) / (10.0 + t));
          ema = decay * ema + (1 - decay) * w;
        }
        expected.push_back(ema);
      }
    }
    EXPECT_LE(RelativeError(trained->ema, expected), 1e-6);
    GradientServer& server = *trained->server;
    ASSERT_NE(server.ema(0)[9], server.master(0)[9]);
    server.UseEma(true);
    EXPECT_EQ(FloatForm(server, 1, 0, 0)[9], server.ema(0)[9]);
    EXPECT_EQ(FloatForm(server, 1, 1, 1)[0], server.ema(1)[6]);
    server.UseEma(false);
    EXPECT_EQ(FloatForm(server, 1, 0, 0)[9], server.master(0)[9]);
  }
}

TEST(Ema, BeforeTheFirstUpdateItIsTheWeights) {
  ServerOptions options = Options({4}, 1);
  options.ema_decay = 0.9;
  StopFlag stop;
  GradientServer server(options, stop);
  server.master(0)[2] = 5;
  server.UseEma(true);
  EXPECT_EQ(FloatForm(server, 0, 0, 0)[2], 5);
}

// A copy costs its writing in every iteration: kernels read the master where they can.
TEST(Forms, TheMasterIsTheFormThatOnlyCopiesIt) {
  const auto shared = [](int domains, double ema_decay) {
    ServerOptions options = Options({4}, 2, domains);
    options.ema_decay = ema_decay;
    StopFlag stop;
    GradientServer server(options, stop);
    server.master(0)[1] = 7;
    server.RefreshForms();
    EXPECT_EQ(FloatForm(server, 0, 0, 0)[1], 7);
    EXPECT_EQ(FloatForm(server, 0, 0, 1)[2], 7);
    EXPECT_NE(server.form(0, 0, 1), server.master(0).data());
    return server.form(0, 0, 0) == server.master(0).data();
  };
  EXPECT_TRUE(shared(1, 0));
  EXPECT_FALSE(shared(2, 0)) << "another domain's memory would be far away";
  EXPECT_FALSE(shared(1, 0.9)) << "evaluation reads the average, and training goes on after it";
}

TEST(OptimizerTest, WrongOptionsAreRefused) {
  const auto make = [](const OptimizerOptions& optimizer) {
    ServerOptions options = Options({4}, 1);
    options.optimizer = optimizer;
    StopFlag stop;
    GradientServer server(options, stop);
  };
  EXPECT_THROW(make({.momentum = 0, .nesterov = true}), UsageError);
  EXPECT_THROW(make({.momentum = 1}), UsageError);
  EXPECT_THROW(make({.kind = OptimizerKind::kAdam, .beta2 = 1}), UsageError);
  EXPECT_THROW(make({.kind = OptimizerKind::kAdam, .epsilon = 0}), UsageError);
  EXPECT_THROW(make({.weight_decay = -1}), UsageError);
  EXPECT_THROW(make({.kind = OptimizerKind::kLars, .trust = 0}), UsageError);
  make({.momentum = 0});
}

TEST(OptimizerTest, StateNamesAreThoseOfTorch) {
  EXPECT_EQ(StateNames({.momentum = 0}), std::vector<std::string>{});
  EXPECT_EQ(StateNames({}), std::vector<std::string>{"momentum_buffer"});
  EXPECT_EQ(StateNames({.kind = OptimizerKind::kAdamW}),
            (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
}

}  // namespace
}  // namespace parax::testing
