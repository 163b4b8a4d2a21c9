#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "parax/base/error.h"
#include "parax/base/log.h"
#include "parax/base/text.h"
#include "parax/cli/bench_timing.h"
#include "parax/cli/commands.h"
#include "parax/cli/train_setup.h"
#include "parax/data/pipeline.h"
#include "parax/engine/peaks.h"
#include "parax/engine/weights.h"

namespace parax {
namespace {

constexpr int kWindows = 10;
constexpr double kWarmUp = 0.1;               // of the time that is measured
constexpr int64_t kLeastMeasured = 3;         // steps, or batches of an instance
constexpr uint64_t kEndless = 1'000'000'000;  // steps

struct Measurement {
  Rates rates;
  Latencies latencies;         // of a step; of an instance's batch in inference
  int64_t images_at_once = 0;  // of which latencies speak
  double flops_an_image = 0;
  std::string plan;  // its hash
};

TrainSetup ResolveBench(const Options& given, const LoadedModel* loaded) {
  Options options = given;
  options.data = "synthetic";
  options.max_steps = kEndless;
  if (options.mode == "infer") options.bn_group.reset();
  if (loaded != nullptr) {
    options.model = loaded->config.model.name;
    options.classes = static_cast<int64_t>(loaded->config.classes.size());
    if (!options.image_size) options.image_size = loaded->config.image_size;
  }
  return ResolveTraining(options);
}

std::unique_ptr<InputSource> Synthetic(const TrainSetup& setup, const BatchPlan& batches) {
  return MakeSyntheticSource(setup.config.image_size, setup.config.image_size, 3,
                             static_cast<int64_t>(setup.config.classes.size()), batches,
                             setup.options.seed, setup.machine.leaf_os_nodes());
}

Measurement Summary(const std::vector<TimedWork>& work, double from, double to,
                    const Trainer& trainer) {
  const Plan& plan = *trainer.plans()[0];
  return {.rates = WindowRates(work, from, to, kWindows),
          .latencies = LatenciesOf(work),
          .images_at_once = work[0].images,
          .flops_an_image = plan.flops() / static_cast<double>(plan.options.batch),
          .plan = trainer.Record().Hash()};
}

Measurement MeasureTraining(TrainSetup& setup, const TensorMap& weights) {
  MemoryEstimate memory = CheckedMemory(setup);
  if (setup.options.tune == "auto") ChoosePlan(setup, memory);
  Trainer trainer(setup.graph, setup.trainer);
  trainer.Load(weights);
  const auto input = Synthetic(setup, setup.trainer.train);
  const double seconds = setup.options.seconds;
  std::vector<TimedWork> steps;
  const auto begin = Clock::now();
  double before = 0, measured_from = 0;
  const auto report = [&](const StepReport& step) {
    const double now = SecondsSince(begin);
    if (step.iteration <= 2 || now < kWarmUp * seconds) {
      measured_from = now;
    } else {
      steps.push_back({before, now, step.loss.count});
    }
    before = now;
  };
  const TrainEnd end = trainer.Train(kEndless, *input, report, [&] {
    return static_cast<int64_t>(steps.size()) >= kLeastMeasured &&
           before - measured_from >= seconds;
  });
  if (end.outcome != Outcome::kOk) Fail("training ended at step {}: {}", end.iteration, end.reason);
  return Summary(steps, measured_from, before, trainer);
}

Measurement MeasureInference(const TrainSetup& setup, const TensorMap& weights) {
  const int leaves = setup.options.instances;
  const int64_t micro = setup.trainer.train.micro_batch;
  const auto batches = [&](int64_t count) {
    return EvalBatches(count * leaves * micro, leaves, micro);
  };
  TrainerOptions options = EvaluatorOptions(setup.machine, setup.config, setup.options, batches(1));
  options.blocked = setup.trainer.blocked;
  Trainer trainer(setup.graph, options);
  trainer.Load(weights);
  std::vector<TimedWork> work;
  double from = 0, to = 0;
  const auto run = [&](int64_t count) {
    const BatchPlan plan = batches(count);
    const auto source = Synthetic(setup, plan);
    TimedInput input(*source, leaves, static_cast<size_t>(count));
    (void)trainer.Evaluate(plan, input, false);
    work.clear();
    from = 0;
    to = INFINITY;
    for (int leaf = 0; leaf < leaves; ++leaf) {  // the time in which all are at work
      const std::vector<TimedWork>& done = input.work(leaf);
      from = std::max(from, done.front().begin);
      to = std::min(to, done.back().end);
      work.insert(work.end(), done.begin(), done.end());
    }
  };
  const double seconds = setup.options.seconds;
  const auto batches_in = [&](double time) {
    return std::max<int64_t>(kLeastMeasured, std::llround(time / LatenciesOf(work).p50));
  };
  run(2);
  run(batches_in(kWarmUp * seconds));
  run(batches_in(seconds));
  return Summary(work, from, to, trainer);
}

}  // namespace

int RunBench(const Options& options) {
  SetQuiet(options.quiet || options.json);
  if (options.model.empty()) FailUsage("--model is missing, such as --model resnet50");
  for (const std::string& line : WithoutEffect(options)) Warn("{}", line);
  const bool training = options.mode == "train";
  std::optional<LoadedModel> loaded;
  if (IsModelPath(options.model)) loaded = LoadModel(options.model);
  if (loaded) Info("{}", loaded->line);
  TrainSetup setup = ResolveBench(options, loaded ? &*loaded : nullptr);
  PrintMachine(setup.machine);
  const TensorMap weights =
      loaded ? std::move(loaded->weights) : InitTensors(setup.graph, options.seed);
  const double peak = MeasureFlops(setup.trainer.seats);
  const Measurement m =
      training ? MeasureTraining(setup, weights) : MeasureInference(setup, weights);

  const double flops = m.rates.median * m.flops_an_image;
  const Latencies& l = m.latencies;
  if (options.json) {
    const nlohmann::ordered_json json = {
        {"model", setup.config.model.name},
        {"mode", options.mode},
        {"cpu", setup.machine.topology.cpu_model},
        {"instances", setup.options.instances},
        {"cores_per_instance", setup.trainer.seats[0].pus.size()},
        {"schedule_policy", options.schedule_policy},
        {"batch", *setup.options.batch},
        {"micro_batch", setup.trainer.train.micro_batch},
        {"plan", m.plan},
        {"images_per_s", m.rates.median},
        {"images_per_s_lowest", m.rates.lowest},
        {"images_per_s_highest", m.rates.highest},
        {"latency_images", m.images_at_once},
        {"latency_ms", {{"p50", 1e3 * l.p50}, {"p90", 1e3 * l.p90}, {"p99", 1e3 * l.p99}}},
        {"gflops_per_s", flops / 1e9},
        {"peak_gflops_per_s", peak / 1e9},
        {"efficiency", flops / peak}};
    fmt::print("{}\n", json.dump());
    return 0;
  }
  fmt::print("{} {}: {:.1f} images/s ({:.1f} - {:.1f} in {} windows)\n", setup.config.model.name,
             training ? "training" : "inference", m.rates.median, m.rates.lowest, m.rates.highest,
             kWindows);
  fmt::print("{} of {} image{}: {:.2f} ms (median), {:.2f} (90 %), {:.2f} (99 %)\n",
             training ? "step" : "batch", m.images_at_once, m.images_at_once == 1 ? "" : "s",
             1e3 * l.p50, 1e3 * l.p90, 1e3 * l.p99);
  fmt::print("{:.1f} GF/s: {:.1f} % of the {:.1f} that multiply-adds alone reach here\n",
             flops / 1e9, 100 * flops / peak, peak / 1e9);
  return 0;
}

}  // namespace parax
