// Training and evaluation with bf16 against float32: losses, logits, gradients, repeatability.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "parax/engine/safetensors.h"
#include "parax/engine/weights.h"
#include "parax/layers/library.h"
#include "parax/models/resnet.h"
#include "tests/training/training_harness.h"

namespace parax::test {
namespace {

constexpr Precision kFloat = {DType::kF32, false};
constexpr Precision kNative = {DType::kBF16, false};
constexpr Precision kEmulated = {DType::kBF16, true};

// Sixteen photographs of ten classes, and a network that knows them.
struct Photographs {
  std::vector<float> images;
  std::vector<int32_t> labels;
  TensorMap weights;
  static bool Load(Photographs& p) {
    const auto folder = DataFolder() / "cifar10-resnet20";
    if (!std::filesystem::exists(folder / "golden.safetensors")) return false;
    const TensorMap golden = ReadSafetensors(folder / "golden.safetensors").tensors;
    p.images = ChannelsLast(golden.at("input").values, 16, 3, 32, 32);
    const std::vector<float>& label = golden.at("label").values;
    p.labels = {label.begin(), label.end()};
    p.weights = ReadSafetensors(folder / "resnet20.safetensors").tensors;
    return true;
  }
};

class PrecisionTest : public testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  void SetUp() override {
    if (!emulated() && !HasBf16()) GTEST_SKIP() << KernelLibrary() << " has no bf16";
    if (!Photographs::Load(photographs_)) GTEST_SKIP() << "no shared data at " << DataFolder();
  }
  static bool emulated() { return std::get<0>(GetParam()); }
  static Precision precision() { return emulated() ? kEmulated : kNative; }

  TrainerOptions Options(const Precision& precision, int instances) const {
    TrainerOptions options = GradientOptions(instances, 16, 16, 16 / instances, 10);
    options.precision = precision;
    options.blocked = std::get<1>(GetParam());
    options.eval_sizes = {options.train.micro_batch};
    return options;
  }

  struct Result {
    std::vector<double> losses;
    TensorMap weights, optimizer;
    std::vector<float> logits;  // of the photographs, afterwards
  };
  Result Train(const TrainerOptions& options, const TensorMap& start, uint64_t steps) const {
    Trainer trainer(graph_, options);
    trainer.Load(StrictLoad(graph_, start, "resnet20"));
    FixedSource source(options.train, 3 * 32 * 32, photographs_.images, photographs_.labels);
    Result result;
    const TrainEnd end = trainer.Train(
        steps, source, [&](const StepReport& r) { result.losses.push_back(r.loss.mean_loss()); },
        [] { return false; });
    EXPECT_EQ(end.outcome, Outcome::kOk) << end.reason;
    result.weights = trainer.Weights();
    result.optimizer = trainer.OptimizerStates();
    FixedSource again(options.train, 3 * 32 * 32, photographs_.images, photographs_.labels);
    result.logits = trainer.Evaluate(options.train, again, false, true).logits;
    return result;
  }

  Photographs photographs_;
  Graph graph_ = BuildModel({.name = "resnet20"});
};

double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

// From random weights, until the photographs are known: losses stay together.
TEST_P(PrecisionTest, LearnsAsFloat32Does) {
  const TensorMap start = InitTensors(graph_, 3);
  const auto losses = [&](const Precision& precision) {
    TrainerOptions options = Options(precision, 1);
    options.learning_rate = [](uint64_t t) {
      return 0.02 * std::min(1.0, static_cast<double>(t) / 5);
    };
    return Train(options, start, 30).losses;
  };
  const std::vector<double> expected = losses(kFloat), found = losses(precision());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], 0.05 + 0.05 * expected[i]) << "step " << i + 1;
  }
  EXPECT_LT(found.back(), 0.3 * found.front());
}

// One step from published weights, at a rate of zero: the momentum buffers are the gradients. For
// the classes after the true ones: the loss is far from zero.
TEST_P(PrecisionTest, LogitsAndGradientsAreNearFloat32s) {
  for (int32_t& label : photographs_.labels) label = (label + 1) % 10;
  const Result expected = Train(Options(kFloat, 1), photographs_.weights, 1);
  const Result found = Train(Options(precision(), 1), photographs_.weights, 1);
  const double logits = Distance(found.logits, expected.logits);
  EXPECT_LE(logits, 0.02);
  EXPECT_GT(logits, 1e-4) << "this is no bf16";
  for (const auto& [name, tensor] : expected.weights) {  // the master is float32: untouched
    if (!name.ends_with("running_mean") && !name.ends_with("running_var")) {
      EXPECT_EQ(found.weights.at(name).values, tensor.values) << name;
    }
  }
  std::vector<float> all, all_expected;
  for (const auto& [name, tensor] : expected.optimizer) {
    const std::vector<float>& values = found.optimizer.at(name).values;
    all.insert(all.end(), values.begin(), values.end());
    all_expected.insert(all_expected.end(), tensor.values.begin(), tensor.values.end());
  }
  EXPECT_LE(Distance(all, all_expected), 0.2);  // PyTorch's autocast: 0.14
}

TEST_P(PrecisionTest, SameBitsWhateverTheTiming) {
  class Delays : public OpHook {
   public:
    Outcome Enter(int leaf, uint64_t iteration, int op) noexcept override {
      if ((static_cast<uint64_t>(op) * 7 + iteration + static_cast<uint64_t>(leaf) * 3) % 11 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      return Outcome::kOk;
    }
  } delays;
  TrainerOptions options = Options(precision(), 2);
  options.learning_rate = [](uint64_t) { return 0.01; };
  options.clip_norm = 1;
  const Result first = Train(options, photographs_.weights, 4);
  options.hook = &delays;
  const Result again = Train(options, photographs_.weights, 4);
  EXPECT_EQ(again.losses, first.losses);
  EXPECT_EQ(again.logits, first.logits);
  for (const auto& [name, tensor] : first.weights) {
    EXPECT_EQ(again.weights.at(name).values, tensor.values) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Bf16, PrecisionTest, testing::Combine(testing::Bool(), testing::Bool()),
                         [](const auto& p) {
                           return std::string(std::get<0>(p.param) ? "Emulated" : "Native") +
                                  (std::get<1>(p.param) ? "Blocked" : "ChannelsLast");
                         });

}  // namespace
}  // namespace parax::test
