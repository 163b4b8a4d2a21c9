#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "parax/base/error.h"
#include "tests/layers/harness.h"

namespace parax::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Reference {
  double loss = 0, weight = 0;
  std::vector<double> softmax, gradient;
};

// torch.nn.CrossEntropyLoss(weight, label_smoothing, reduction="sum") in double, the way PyTorch
// computes it: for class indices (1 - s) * weighted nll + s / K * weighted sum; for probabilities
// smoothed targets. The weight is what reduction="mean" divides by.
Reference Compute(const LossOptions& o, const LayerRun& run) {
  const auto classes = static_cast<size_t>(o.classes);
  const double s = o.label_smoothing, k = static_cast<double>(classes);
  const auto weight = [&](size_t c) { return o.class_weights.empty() ? 1.0 : o.class_weights[c]; };
  Reference r;
  for (size_t n = 0; n < run.labels.size(); ++n) {
    const float* x = &run.inputs[0][n * classes];
    long double sum = 0;
    for (size_t c = 0; c < classes; ++c) sum += std::exp(static_cast<long double>(x[c]));
    std::vector<double> log_p(classes), t(classes, 0.0);
    for (size_t c = 0; c < classes; ++c)
      log_p[c] = static_cast<double>(static_cast<long double>(x[c]) - std::log(sum));
    if (o.probabilities) {
      for (size_t c = 0; c < classes; ++c)
        t[c] = weight(c) * (run.targets[n * classes + c] * (1 - s) + s / k);
      r.weight += 1;
    } else {
      const auto y = static_cast<size_t>(run.labels[n]);
      for (size_t c = 0; c < classes; ++c) t[c] = s / k * weight(c);
      t[y] += (1 - s) * weight(y);
      r.weight += weight(y);
    }
    double total = 0;
    for (const double v : t) total += v;
    for (size_t c = 0; c < classes; ++c) {
      r.loss -= t[c] * log_p[c];
      r.softmax.push_back(std::exp(log_p[c]));
      r.gradient.push_back(std::exp(log_p[c]) * total - t[c]);
    }
  }
  return r;
}

Values Rounded(const std::vector<double>& values) { return Values(values.begin(), values.end()); }

std::vector<LossOptions> AllOptions(int64_t classes) {
  std::vector<LossOptions> all;
  for (const double smoothing : {0.0, 0.1, 1.0}) {
    for (const bool weighted : {false, true}) {
      for (const bool probabilities : {false, true}) {
        LossOptions o{.classes = classes, .label_smoothing = smoothing};
        if (weighted) o.class_weights = RandomValues(static_cast<size_t>(classes), 5, 0, 2);
        o.probabilities = probabilities;
        all.push_back(o);
      }
    }
  }
  return all;
}

void FillLabels(LayerRun& run, int64_t classes) {
  for (size_t n = 0; n < run.labels.size(); ++n)
    run.labels[n] = static_cast<int32_t>(static_cast<int64_t>(n * 7 + 3) % classes);
}

TEST(Loss, MatchesDoubleReference) {
  for (const Dims& dims : {Dims{1, 1}, Dims{4, 10}, Dims{3, 37}, Dims{2, 1000}}) {
    for (const LossOptions& o : AllOptions(dims[1])) {
      LayerRun run(SoftmaxCrossEntropy(o), Request({dims}));
      run.inputs[0] = RandomValues(run.inputs[0].size(), 9, -6, 6);
      FillLabels(run, dims[1]);
      ASSERT_EQ(run.Forward(), Outcome::kOk);
      const Values softmax = run.output();
      ASSERT_EQ(run.Backward(), Outcome::kOk);
      const Reference r = Compute(o, run);
      EXPECT_NEAR(run.loss().loss_sum, r.loss, 1e-12 * std::abs(r.loss) + 1e-15);
      EXPECT_NEAR(run.loss().weight_sum, r.weight, 1e-12 * r.weight);
      EXPECT_EQ(run.loss().count, dims[0]);
      EXPECT_TRUE(run.loss().finite);
      ExpectNear(softmax, Rounded(r.softmax), 1e-7, "softmax");
      ExpectNear(run.input_grad(0), Rounded(r.gradient), 3e-7, "gradient");
    }
  }
}

// Numbers printed by PyTorch 2.15: CrossEntropyLoss(weight, label_smoothing=0.1) in float64, the
// mean and, with reduction="sum", the sum and its gradient.
TEST(Loss, PyTorchGolden) {
  struct Golden {
    bool probabilities;
    double mean, sum;
    Values gradient;
  };
  const Golden goldens[] = {{false,
                             2.943231034998643,
                             6.622269828746948,
                             {0.2795822f, -1.78482765f, 1.28402161f, 0.221223846f, -0.0122360764f,
                              -0.0262423537f, -0.0196989526f, 0.0581773827f}},
                            {true,
                             3.6633759734513056,
                             7.326751946902611,
                             {0.132237257f, -0.905153681f, 0.650762392f, 0.122154033f,
                              -0.0112580065f, -1.28819931f, -5.38944694e-05f, 1.29951121f}}};
  for (const Golden& golden : goldens) {
    LossOptions o{.classes = 4, .label_smoothing = 0.1, .class_weights = {0.5f, 2, 1, 0.25f}};
    o.probabilities = golden.probabilities;
    LayerRun run(SoftmaxCrossEntropy(o), Request({{2, 4}}));
    run.inputs[0] = {0.5f, -1, 2, 0.25f, -3, 1.5f, 0, 4};
    run.labels = {1, 3};
    run.targets = {0.125f, 0.5f, 0.25f, 0.125f, 0, 0.75f, 0, 0.25f};
    ASSERT_EQ(run.Forward(), Outcome::kOk);
    ASSERT_EQ(run.Backward(), Outcome::kOk);
    EXPECT_NEAR(run.loss().loss_sum, golden.sum, 1e-12);
    EXPECT_NEAR(run.loss().loss_sum / run.loss().weight_sum, golden.mean, 1e-12);
    ExpectNear(run.input_grad(0), golden.gradient, 2e-7, "gradient");
  }
}

TEST(Loss, Jacobian) {
  for (const LossOptions& o : AllOptions(7)) {
    LayerRun run(SoftmaxCrossEntropy(o), Request({{3, 7}}));
    FillLabels(run, 7);
    ExpectGradientsMatch(run, {.step = 1e-3, .tolerance = 1e-4});
  }
}

TEST(Loss, GradientMayOverwriteTheSoftmax) {
  LayerRun apart(SoftmaxCrossEntropy({.classes = 7}), Request({{3, 7}}));
  LayerRun shared(SoftmaxCrossEntropy({.classes = 7}), Request({{3, 7}}), /*in_place=*/true);
  for (LayerRun* run : {&apart, &shared}) {
    ASSERT_EQ(run->Forward(), Outcome::kOk);
    ASSERT_EQ(run->Backward(), Outcome::kOk);
  }
  ExpectSameBits(shared.input_grad(0), apart.input_grad(0), "gradient");
}

TEST(Loss, OneClassCostsNothing) {
  LayerRun run(SoftmaxCrossEntropy({.classes = 1, .label_smoothing = 0.1}), Request({{2, 1}}));
  ASSERT_EQ(run.Forward(), Outcome::kOk);
  ASSERT_EQ(run.Backward(), Outcome::kOk);
  EXPECT_EQ(run.loss().loss_sum, 0);
  EXPECT_EQ(run.loss().correct1, 2);
  EXPECT_EQ(run.loss().correct5, 2);
  EXPECT_EQ(run.input_grad(0), (Values{0, 0}));
}

TEST(Loss, HugeScoresDoNotOverflow) {
  LayerRun run(SoftmaxCrossEntropy({.classes = 3}), Request({{3, 3}}));
  run.inputs[0] = {3e38f, -3e38f, 0, 1e4f, 1e4f, -kInf, -1e30f, -1e30f, -1e30f};
  run.labels = {1, 0, 2};
  ASSERT_EQ(run.Forward(), Outcome::kOk);
  ASSERT_EQ(run.Backward(), Outcome::kOk);
  EXPECT_TRUE(run.loss().finite);
  EXPECT_NEAR(run.loss().loss_sum / 6e38, 1, 1e-6);
  ExpectNear(run.input_grad(0), {1, -1, 0, -0.5f, 0.5f, 0, 1.0f / 3, 1.0f / 3, -2.0f / 3}, 1e-7,
             "gradient");
}

TEST(Loss, SaysWhenItIsNotFinite) {
  for (const float bad : {kNaN, kInf}) {
    for (const size_t where : {0, 1, 2}) {
      LayerRun run(SoftmaxCrossEntropy({.classes = 3}), Request({{2, 3}}));
      ASSERT_EQ(run.Forward(), Outcome::kOk);
      EXPECT_TRUE(run.loss().finite);
      run.inputs[0][3 + where] = bad;
      ASSERT_EQ(run.Forward(), Outcome::kOk);
      EXPECT_FALSE(run.loss().finite) << bad << " at " << where;
    }
  }
}

TEST(Loss, CountsHits) {
  LayerRun run(SoftmaxCrossEntropy({.classes = 7}), Request({{6, 7}}, Mode::kEvaluation));
  run.inputs[0] = {
      0, 1, 2,    3, 4, 5, 6,  // label 6: first
      0, 1, 2,    3, 4, 5, 6,  // label 2: fifth
      0, 1, 2,    3, 4, 5, 6,  // label 1: sixth
      1, 1, 1,    1, 1, 1, 1,  // label 0: ties go to the lower index, so first
      1, 1, 1,    1, 1, 1, 1,  // label 1: so second
      9, 8, kNaN, 0, 0, 0, 0,  // label 0: NaN ranks before it, so second
  };
  run.labels = {6, 2, 1, 0, 1, 0};
  ASSERT_EQ(run.Forward(), Outcome::kOk);
  EXPECT_EQ(run.loss().correct1, 2);
  EXPECT_EQ(run.loss().correct5, 5);
  EXPECT_EQ(run.loss().count, 6);
  run.labels[5] = 2;  // its own score is NaN: no hit at all
  ASSERT_EQ(run.Forward(), Outcome::kOk);
  EXPECT_EQ(run.loss().correct1, 2);
  EXPECT_EQ(run.loss().correct5, 4);
  EXPECT_TRUE(run.compiled().backward.empty());
}

TEST(Loss, CountsHitsOfTheMostProbableTarget) {
  LayerRun run(SoftmaxCrossEntropy({.classes = 3, .probabilities = true}), Request({{2, 3}}));
  run.inputs[0] = {1, 3, 2, 1, 3, 2};
  run.targets = {0.2f, 0.5f, 0.3f, 0.6f, 0.4f, 0};
  ASSERT_EQ(run.Forward(), Outcome::kOk);
  EXPECT_EQ(run.loss().correct1, 1);
  EXPECT_EQ(run.loss().correct5, 2);
}

TEST(Loss, RefusesLabelsOutOfRange) {
  for (const int32_t bad : {-1, 7, std::numeric_limits<int32_t>::min()}) {
    LayerRun run(SoftmaxCrossEntropy({.classes = 7}), Request({{3, 7}}));
    run.labels[2] = bad;
    EXPECT_EQ(run.Forward(), Outcome::kKernelFailed);
    EXPECT_EQ(run.Backward(), Outcome::kKernelFailed);
  }
}

TEST(Loss, LeavesUnknownClassesOutOfEvaluation) {
  LayerRun run(SoftmaxCrossEntropy({.classes = 2}), Request({{2, 2}}, Mode::kEvaluation));
  run.inputs[0] = {0, std::log(3.0f), 1, 1};
  run.labels = {-1, 0};
  ASSERT_EQ(run.Forward(), Outcome::kOk);
  EXPECT_NEAR(run.output()[1], 0.75, 1e-6);
  EXPECT_NEAR(run.loss().loss_sum, std::log(2.0), 1e-6);
  EXPECT_EQ(run.loss().weight_sum, 1);
  EXPECT_EQ(run.loss().count, 1);
  EXPECT_EQ(run.loss().correct5, 1);
  run.labels = {-2, 0};
  EXPECT_EQ(run.Forward(), Outcome::kKernelFailed);
  run.labels = {-1, 0};
  run.inputs[0][0] = kNaN;
  ASSERT_EQ(run.Forward(), Outcome::kOk);
  EXPECT_FALSE(run.loss().finite);
}

TEST(Loss, RefusesImpossibleOptions) {
  EXPECT_THROW((void)SoftmaxCrossEntropy({.classes = 0}), Error);
  EXPECT_THROW((void)SoftmaxCrossEntropy({.classes = 2, .label_smoothing = 1.5}), Error);
  EXPECT_THROW((void)SoftmaxCrossEntropy({.classes = 2, .class_weights = {1}}), Error);
  EXPECT_THROW((void)SoftmaxCrossEntropy({.classes = 2, .class_weights = {1, kNaN}}), Error);
  EXPECT_THROW((void)SoftmaxCrossEntropy({.classes = 3})->OutputDims({{2, 4}}), Error);
}

TEST(LossResult, HasMeans) {
  LossResult result;
  EXPECT_EQ(result.mean_loss(), 0);
  EXPECT_EQ(result.accuracy(), 0);
  EXPECT_EQ(result.top5(), 0);
  result += {.loss_sum = 3, .weight_sum = 1.5, .correct1 = 1, .correct5 = 3, .count = 4};
  EXPECT_EQ(result.mean_loss(), 2);
  EXPECT_EQ(result.accuracy(), 0.25);
  EXPECT_EQ(result.top5(), 0.75);
}

}  // namespace
}  // namespace parax::testing
