// Training as a whole: the same bits whatever the timing, uneven batches, resuming, stopping.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "parax/base/philox.h"
#include "parax/engine/weights.h"
#include "tests/training/training_harness.h"

namespace parax::test {
namespace {

constexpr int64_t kSide = 12;
constexpr int64_t kClasses = 5;

// Small, but with everything: strided and padded convolutions, norms, residual adds, pooling.
Graph SmallGraph(bool norm) {
  Graph g;
  const auto maybe_norm = [&](const std::string& name, int64_t channels, int x, bool relu) {
    if (norm) return g.Add(name, BatchNorm({.channels = channels, .relu = relu}), x);
    return relu ? g.Add("", Relu(), x) : x;
  };
  int x = g.Input(3, kSide, kSide);
  x = g.Add("conv1", Conv({.in_channels = 3, .out_channels = 8, .kernel = 3, .padding = 1}), x);
  x = maybe_norm("bn1", 8, x, true);
  x = g.Add("", MaxPool({.kernel = 3, .stride = 2, .padding = 1}), x);
  int y = g.Add("conv2", Conv({.in_channels = 8, .out_channels = 8, .kernel = 3, .padding = 1}), x);
  y = maybe_norm("bn2", 8, y, false);
  x = g.Add("", Add(true), {y, x});
  x = g.Add("conv3", Conv({.in_channels = 8, .out_channels = 16, .kernel = 1, .stride = 2}), x);
  x = maybe_norm("bn3", 16, x, true);
  x = g.Add("", GlobalAvgPool(), x);
  g.SetLogits(g.Add("fc", Linear(16, kClasses), x));
  return g;
}

struct Data {
  std::vector<float> images;
  std::vector<int32_t> labels;
};

Data RandomData(int64_t samples) {
  Data data;
  RandomStream random(7, RandomUse::kTest);
  for (int64_t i = 0; i < samples * 3 * kSide * kSide; ++i) {
    data.images.push_back(static_cast<float>(random.Normal()));
  }
  for (int64_t i = 0; i < samples; ++i) {
    data.labels.push_back(static_cast<int32_t>(random.Below(kClasses)));
  }
  return data;
}

TrainerOptions Options(int instances, int64_t samples, int64_t batch, int64_t micro) {
  TrainerOptions options = GradientOptions(instances, samples, batch, micro, kClasses);
  options.learning_rate = [](uint64_t t) { return 0.05 / static_cast<double>(t); };
  options.optimizer.nesterov = true;
  options.optimizer.weight_decay = 1e-4;
  return options;
}

struct Result {
  std::vector<double> losses;
  TensorMap weights, ema;
};

bool SameBits(const TensorMap& a, const TensorMap& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, tensor] : a) {
    if (b.at(name).values != tensor.values) return false;
  }
  return true;
}

Result TrainOnce(const Graph& graph, TrainerOptions options, uint64_t iterations) {
  const Data data = RandomData(options.train.samples);
  Trainer trainer(graph, options);
  trainer.Load(InitTensors(graph, 3));
  FixedSource source(options.train, 3 * kSide * kSide, data.images, data.labels);
  Result result;
  const TrainEnd end = trainer.Train(
      iterations, source,
      [&](const StepReport& r) { result.losses.push_back(r.loss.loss_sum / r.loss.weight_sum); },
      [] { return false; });
  EXPECT_EQ(end.outcome, Outcome::kOk) << end.reason;
  EXPECT_EQ(end.iteration, iterations);
  result.weights = trainer.Weights();
  result.ema = trainer.EmaWeights();
  return result;
}

// Delays ops at random, differently each time it is made.
class RandomDelays : public OpHook {
 public:
  Outcome Enter(int leaf, uint64_t iteration, int op) noexcept override {
    thread_local uint64_t state = std::hash<std::thread::id>()(std::this_thread::get_id()) ^
                                  static_cast<uint64_t>(Clock::now().time_since_epoch().count());
    state = state * 6364136223846793005u + 1442695040888963407u;
    if (state >> 61 == 0) std::this_thread::sleep_for(std::chrono::microseconds(state >> 54 & 255));
    (void)leaf, (void)iteration, (void)op;
    return Outcome::kOk;
  }
};

TEST(TrainingTest, SameBitsWhateverTheTiming) {
  const Graph graph = SmallGraph(true);
  TrainerOptions options = Options(3, 33, 12, 2);
  options.ema_decay = 0.9;
  options.clip_norm = 0.5;
  const Result first = TrainOnce(graph, options, 10);
  for (int i = 0; i < 3; ++i) {
    RandomDelays delays;
    options.hook = &delays;
    const Result again = TrainOnce(graph, options, 10);
    EXPECT_EQ(again.losses, first.losses);
    EXPECT_TRUE(SameBits(again.weights, first.weights));
    EXPECT_TRUE(SameBits(again.ema, first.ema));
  }
}

TEST(TrainingTest, DomainsAndPolicyLeaveTheBitsAsTheyAre) {
  const Graph graph = SmallGraph(true);
  TrainerOptions options = Options(4, 32, 16, 4);
  const Result first = TrainOnce(graph, options, 6);
  for (const int domains : {1, 2, 4}) {
    for (const UpdatePolicy policy : {UpdatePolicy::kEager, UpdatePolicy::kCommit}) {
      options.seats = UnboundSeats(4, domains);
      options.domain_nodes.assign(static_cast<size_t>(domains), -1);
      options.policy = policy;
      const Result again = TrainOnce(graph, options, 6);
      EXPECT_EQ(again.losses, first.losses);
      EXPECT_TRUE(SameBits(again.weights, first.weights)) << domains;
    }
  }
}

// Without batch statistics the sums do not depend on how the batch is shared out; the last batch is
// smaller than the number of instances, down to one sample (case I).
TEST(TrainingTest, UnevenBatchesAreMeansOverSamples) {
  const Graph graph = SmallGraph(false);
  for (const int64_t samples : {9, 10, 11, 13}) {
    const Result one = TrainOnce(graph, Options(1, samples, 8, 8), 4);
    for (const auto& [instances, micro] : {std::pair{2, 4}, {3, 8}, {5, 1}}) {
      const Result shared = TrainOnce(graph, Options(instances, samples, 8, micro), 4);
      for (size_t i = 0; i < one.losses.size(); ++i) {
        EXPECT_NEAR(shared.losses[i], one.losses[i], 1e-5) << samples << " " << instances;
      }
      std::string worst;
      EXPECT_LE(WorstError(shared.weights, one.weights, worst), 1) << worst;
    }
  }
}

TEST(TrainingTest, OneSampleOverThreeInstancesWithNorm) {
  const Graph graph = SmallGraph(true);
  const Result result = TrainOnce(graph, Options(3, 7, 6, 2), 6);  // every second batch: one sample
  for (const auto& [name, tensor] : result.weights) {
    for (const float v : tensor.values) ASSERT_TRUE(std::isfinite(v)) << name;
  }
}

TEST(TrainingTest, ResumesExactly) {
  const Graph graph = SmallGraph(true);
  TrainerOptions options = Options(2, 24, 8, 4);
  options.ema_decay = 0.9;
  const Result whole = TrainOnce(graph, options, 9);

  const Data data = RandomData(24);
  TensorMap weights, ema, optimizer;
  {
    Trainer trainer(graph, options);
    trainer.Load(InitTensors(graph, 3));
    FixedSource source(options.train, 3 * kSide * kSide, data.images, data.labels);
    (void)trainer.Train(
        3, source, [](const StepReport&) {}, [] { return false; });
    weights = trainer.Weights();
    ema = trainer.EmaWeights();
    optimizer = trainer.OptimizerStates();
  }
  Trainer trainer(graph, options);
  trainer.Load(weights);
  trainer.Resume(3, optimizer, ema);
  FixedSource source(options.train, 3 * kSide * kSide, data.images, data.labels);
  std::vector<double> losses;
  (void)trainer.Train(
      9, source,
      [&](const StepReport& r) { losses.push_back(r.loss.loss_sum / r.loss.weight_sum); },
      [] { return false; });
  EXPECT_EQ(losses, std::vector<double>(whole.losses.begin() + 3, whole.losses.end()));
  EXPECT_TRUE(SameBits(trainer.Weights(), whole.weights));
  EXPECT_TRUE(SameBits(trainer.EmaWeights(), whole.ema));
}

TEST(TrainingTest, AllLeavesStopAfterTheSameIteration) {
  const Graph graph = SmallGraph(true);
  const TrainerOptions options = Options(3, 24, 12, 4);
  const Data data = RandomData(24);
  Trainer trainer(graph, options);
  trainer.Load(InitTensors(graph, 3));
  FixedSource source(options.train, 3 * kSide * kSide, data.images, data.labels);
  uint64_t reported = 0;
  const TrainEnd end = trainer.Train(
      100000, source, [&](const StepReport& r) { reported = r.iteration; },
      [&] { return reported >= 5; });
  EXPECT_EQ(end.outcome, Outcome::kOk);
  EXPECT_GE(end.iteration, 5u);
  EXPECT_LT(end.iteration, 100u);
  EXPECT_EQ(end.iteration, reported);
  // The same weights as a run of that length.
  EXPECT_TRUE(SameBits(trainer.Weights(), TrainOnce(graph, options, end.iteration).weights));
}

// Case O: the loss turns NaN; the message names step and layer, and the weights are the last good.
TEST(TrainingTest, DivergenceNamesStepAndLayer) {
  const Graph graph = SmallGraph(true);
  const TrainerOptions options = Options(2, 24, 8, 4);
  Data data = RandomData(24);
  data.images[0] = NAN;  // of sample 0, in the first iteration of each epoch
  Trainer trainer(graph, options);
  trainer.Load(InitTensors(graph, 3));
  FixedSource source(options.train, 3 * kSide * kSide, data.images, data.labels);
  const TrainEnd end = trainer.Train(
      6, source, [](const StepReport&) {}, [] { return false; });
  EXPECT_EQ(end.outcome, Outcome::kNotFinite);
  EXPECT_NE(end.reason.find("step 1"), std::string::npos) << end.reason;
  EXPECT_NE(end.reason.find("input images"), std::string::npos) << end.reason;
}

TEST(TrainingTest, OverflowInALayerIsNamed) {
  const Graph graph = SmallGraph(false);
  const TrainerOptions options = Options(2, 24, 8, 4);
  const Data data = RandomData(24);
  Trainer trainer(graph, options);
  TensorMap tensors = InitTensors(graph, 3);
  for (float& v : tensors.at("conv3.weight").values) v = 3e38f;
  trainer.Load(tensors);
  FixedSource source(options.train, 3 * kSide * kSide, data.images, data.labels);
  const TrainEnd end = trainer.Train(
      6, source, [](const StepReport&) {}, [] { return false; });
  EXPECT_EQ(end.outcome, Outcome::kNotFinite);
  EXPECT_NE(end.reason.find("conv3"), std::string::npos) << end.reason;
}

// Frozen layers keep their weights, and so do their norms' statistics.
TEST(TrainingTest, FrozenLayersStayAsTheyAre) {
  Graph graph = SmallGraph(true);
  graph.Freeze({"conv1", "bn1"});
  const Result result = TrainOnce(graph, Options(2, 24, 8, 4), 4);
  const TensorMap before = InitTensors(graph, 3);
  for (const auto& [name, tensor] : before) {
    const bool frozen = name.starts_with("conv1") || name.starts_with("bn1");
    EXPECT_EQ(result.weights.at(name).values == tensor.values, frozen) << name;
  }
}

}  // namespace
}  // namespace parax::test
