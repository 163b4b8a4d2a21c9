// The harness's values and comparisons.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "parax/base/philox.h"
#include "tests/layers/harness.h"

namespace parax::testing {

Values RandomValues(size_t count, uint64_t stream, double low, double high) {
  RandomStream random(7, RandomUse::kTest, stream);
  Values values(count);
  for (float& v : values) v = static_cast<float>(random.Uniform(low, high));
  return values;
}

Values SpreadValues(size_t count, uint64_t stream, double gap) {
  RandomStream random(7, RandomUse::kTest, stream);
  Values values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] =
        static_cast<float>((static_cast<double>(i) - static_cast<double>(count / 2) + 0.5) * gap);
  }
  for (size_t i = count; i > 1; --i) std::swap(values[i - 1], values[random.Below(i)]);
  return values;
}

CompileRequest Request(const std::vector<Dims>& inputs, Mode mode, bool blocked, int threads) {
  CompileRequest request;
  request.mode = mode;
  for (const Dims& dims : inputs) request.inputs.push_back(Layout::ChannelsLast(dims));
  request.need_input_grad.assign(inputs.size(), true);
  request.blocked = blocked;
  request.threads = threads;
  return request;
}

void ExpectGradientsMatch(LayerRun& run, const JacobianOptions& options) {
  const bool is_loss =
      std::any_of(run.compiled().forward.begin(), run.compiled().forward.end(), [](const auto& op) {
        return std::any_of(op.arguments.begin(), op.arguments.end(),
                           [](const Argument& a) { return a.role == Role::kLoss; });
      });
  const auto scalar = [&] {
    EXPECT_EQ(run.Forward(), Outcome::kOk);
    if (is_loss) return run.loss().loss_sum;
    const Values y = run.output();
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += double{y[i]} * run.output_grad[i];
    return sum;
  };
  scalar();
  ASSERT_EQ(run.Backward(), Outcome::kOk);

  const auto check = [&](Values& x, const Values& gradient, const std::string& what) {
    double largest = 0;
    for (float g : gradient) largest = std::max(largest, std::abs(double{g}));
    const size_t stride = std::max<size_t>(1, x.size() / options.most_checked);
    for (size_t i = 0; i < x.size(); i += stride) {
      const float kept = x[i];
      x[i] = static_cast<float>(kept + options.step);
      const double above = x[i];
      const double f_above = scalar();
      x[i] = static_cast<float>(kept - options.step);
      const double below = x[i];
      const double f_below = scalar();
      x[i] = kept;
      const double numeric = (f_above - f_below) / (above - below);
      const double bound = options.tolerance * std::max(largest, 1e-3);
      if (std::abs(numeric - gradient[i]) <= bound) continue;  // false for NaN too
      ADD_FAILURE() << run.layer().kind() << ": gradient of " << what << "[" << i << "] is "
                    << gradient[i] << ", central difference " << numeric << " (bound " << bound
                    << ")";
      return;
    }
  };
  std::vector<Values> input_grads, param_grads;  // before Forward overwrites the buffers
  for (size_t i = 0; i < run.inputs.size(); ++i) {
    input_grads.push_back(run.request().need_input_grad[i] ? run.input_grad(static_cast<int>(i))
                                                           : Values{});
  }
  for (size_t i = 0; i < run.params.size() && run.request().need_param_grad; ++i) {
    param_grads.push_back(run.param_grad(static_cast<int>(i)));
  }
  for (size_t i = 0; i < input_grads.size(); ++i) {
    if (!input_grads[i].empty()) check(run.inputs[i], input_grads[i], "input " + std::to_string(i));
  }
  for (size_t i = 0; i < param_grads.size(); ++i) {
    check(run.params[i], param_grads[i], run.layer().Params()[i].name);
  }
}

void ExpectNear(const Values& actual, const Values& expected, double tolerance,
                const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = 0;
  for (float v : expected) largest = std::max(largest, std::abs(double{v}));
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::abs(double{actual[i]} - expected[i]) <= tolerance * largest) continue;
    FAIL() << what << "[" << i << "] is " << actual[i] << ", expected " << expected[i];
  }
}

void ExpectSameBits(const Values& actual, const Values& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::bit_cast<uint32_t>(actual[i]) == std::bit_cast<uint32_t>(expected[i])) continue;
    FAIL() << what << "[" << i << "] is " << actual[i] << ", expected the bits of " << expected[i];
  }
}

}  // namespace parax::testing
