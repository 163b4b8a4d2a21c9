#include "parax/cli/train_setup.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <numeric>

#include "parax/base/error.h"
#include "parax/base/text.h"
#include "parax/cli/train_setup_internal.h"

namespace parax {
namespace {

constexpr int64_t kSyntheticBatches = 100;  // an epoch of synthetic data
constexpr int64_t kDefaultShare = 16;       // images an instance and step, unless the user says
constexpr int64_t kDefaultLeastBatch = 64;
constexpr int64_t kLeastSteps = 50;  // an epoch, so that a small data set gets enough updates
constexpr int64_t kLeastShare = 16;  // batch norm needs some images to take statistics of ...
constexpr int64_t kLeastGroup = 8;   // ... and with fewer than these learns visibly worse

// The batch when the user names none: kDefaultShare images an instance, but never so large that an
// epoch of a small data set is only a few steps; then a power of two.
int64_t DefaultBatch(int64_t samples, int64_t instances) {
  const int64_t wanted = std::max(kDefaultLeastBatch, kDefaultShare * instances);
  if (wanted * kLeastSteps <= samples) return wanted;
  return std::max<int64_t>(kLeastShare, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(
                                            std::max<int64_t>(1, samples / kLeastSteps)))));
}

void ResolveBatch(TrainSetup& setup, int64_t samples) {
  Options& options = setup.options;
  const int64_t leaves = static_cast<int64_t>(setup.machine.plan.seats.size());
  int64_t batch = options.batch.value_or(0);
  if (!options.batch) {
    batch = DefaultBatch(samples, leaves);
    if (options.bn_group) {
      const int64_t unit = leaves * *options.bn_group;
      batch = std::max<int64_t>(1, (batch + unit / 2) / unit) * unit;
    } else {
      batch = std::max<int64_t>(1, batch / leaves) * leaves;
    }
    setup.notes.push_back(fmt::format("--batch {} (default for {} instance{})", batch, leaves,
                                      leaves == 1 ? "" : "s"));
  }
  if (batch < leaves) {
    FailUsage(
        "--batch {} gives {} instances less than one image each: use --instances {} or a "
        "batch of at least {}",
        batch, leaves, batch, leaves);
  }
  if (options.bn_group) {
    const int64_t group = *options.bn_group;
    const int64_t unit = group * leaves;
    if (batch % unit != 0) {
      const int64_t below = batch / unit * unit;
      FailUsage("--batch {} can't be divided over {} instances in batch-norm groups of {}: use {}",
                batch, leaves, group,
                below > 0
                    ? fmt::format("--batch {} or {}, or another --bn-group", below, below + unit)
                    : fmt::format("a --bn-group of at most {}", batch / leaves));
    }
  }
  options.batch = batch;
  const int64_t share = (batch + leaves - 1) / leaves;
  if (!options.bn_group) {
    options.bn_group = share;
    setup.notes.push_back(
        fmt::format("--bn-group {} (default: an instance's share){}", share,
                    share < kLeastGroup && !options.freeze_norm
                        ? ": few to take statistics of; more --batch or fewer --instances help"
                        : ""));
  }
  if (options.drop_last && samples < batch) {
    FailUsage(
        "--drop-last with --batch {} leaves nothing of {} training images: use a smaller "
        "batch",
        batch, samples);
  }
  setup.trainer.train = {samples, batch, static_cast<int>(leaves), *options.bn_group,
                         options.drop_last};
}

void ResolveSpan(const std::optional<Span>& span, const TrainSetup& setup, uint64_t& steps,
                 double& seconds) {
  if (!span) {
    steps = setup.steps_per_epoch;
  } else if (span->unit == Span::Unit::kSeconds) {
    seconds = span->value;
  } else {
    steps = span->value == 0 ? 0 : std::max<uint64_t>(1, ToSteps(*span, setup));
  }
}

void ResolveLength(TrainSetup& setup) {
  Options& options = setup.options;
  setup.steps_per_epoch = static_cast<uint64_t>(setup.trainer.train.IterationsPerEpoch());
  if (!options.epochs && !options.max_steps) {
    options.epochs = setup.config.model.image_size <= 64 ? 30 : 90;
    setup.notes.push_back(fmt::format("--epochs {} (default)", *options.epochs));
  }
  double steps = INFINITY;
  if (options.epochs) {
    steps = std::ceil(*options.epochs * static_cast<double>(setup.steps_per_epoch) - 1e-9);
  }
  if (options.max_steps) steps = std::min(steps, static_cast<double>(*options.max_steps));
  constexpr double kMostSteps = 1e15;
  if (steps > kMostSteps) FailUsage("{:g} steps are too many: use fewer --epochs", steps);
  setup.total_steps = static_cast<uint64_t>(steps);
  ResolveSpan(options.eval_every, setup, setup.eval_every, setup.eval_seconds);
  ResolveSpan(options.save_every, setup, setup.save_every, setup.save_seconds);
}

std::vector<float> ClassWeights(const Options& options, const Dataset& dataset) {
  const size_t classes = dataset.classes.size();
  if (options.class_weights.empty()) return {};
  std::vector<float> weights;
  if (options.class_weights == "balanced") {
    const std::vector<int64_t> counts = dataset.train.ClassCounts(classes);
    for (const int64_t count : counts) {
      weights.push_back(count == 0 ? 0.0f
                                   : static_cast<float>(dataset.train.size()) /
                                         static_cast<float>(static_cast<int64_t>(classes) * count));
    }
    return weights;
  }
  const char* at = options.class_weights.data();
  const char* end = at + options.class_weights.size();
  while (at < end) {
    float weight = 0;
    const auto [next, error] = std::from_chars(at, end, weight);
    if (error != std::errc() || !(weight >= 0) || std::isinf(weight) ||
        (next != end && *next != ',')) {
      FailUsage(
          "--class-weights is '{}'; it must be 'balanced' or numbers >= 0 with commas between",
          options.class_weights);
    }
    weights.push_back(weight);
    at = next == end ? end : next + 1;
  }
  if (weights.size() != classes) {
    FailUsage("--class-weights has {} numbers for {} classes", weights.size(), classes);
  }
  if (std::ranges::all_of(weights, [](float weight) { return weight == 0; })) {
    FailUsage("--class-weights is '{}': with all weights 0 nothing is learnt",
              options.class_weights);
  }
  return weights;
}

void ResolveLoss(TrainSetup& setup) {
  LossOptions& loss = setup.trainer.loss;
  loss.classes = static_cast<int64_t>(setup.config.classes.size());
  const bool mixing = setup.options.mixup > 0 || setup.options.cutmix > 0;
  if (setup.synthetic && (mixing || !setup.options.class_weights.empty())) {
    FailUsage("--mixup, --cutmix and --class-weights need real images, not --data synthetic");
  }
  loss.probabilities = mixing;
  loss.label_smoothing = mixing ? 0 : setup.options.label_smoothing;  // mixing smooths itself
  if (setup.synthetic || setup.options.class_weights.empty()) return;
  loss.class_weights = ClassWeights(setup.options, setup.dataset);
  std::string line = "class weights:";
  for (size_t c = 0; c < std::min<size_t>(loss.class_weights.size(), 12); ++c) {
    line += fmt::format("{} {} {:.3g}", c == 0 ? "" : ",", setup.config.classes[c],
                        loss.class_weights[c]);
  }
  setup.notes.push_back(line + (loss.class_weights.size() > 12 ? ", ..." : ""));
}

void ResolveModel(TrainSetup& setup) {
  Options& o = setup.options;
  ModelConfig& config = setup.config;
  config.model.name = o.model;
  config.model.dropout = o.dropout;
  config.model.freeze_norm = o.freeze_norm;
  config.model.image_size = o.image_size.value_or(0);
  config.model.classes = static_cast<int64_t>(config.classes.size());
  config.model = Resolved(config.model);
  const Preprocessing defaults = DefaultPreprocessing(config.model);
  config.image_size = config.model.image_size;
  o.image_size = config.image_size;
  config.resize = o.resize.value_or(defaults.resize);
  o.resize = config.resize;
  config.interpolation = o.interpolation;
  if (!o.normalise.empty()) {
    config.normalization = ParseNormalization(o.normalise);
  } else {
    std::copy_n(defaults.mean.begin(), 3, config.normalization.mean.begin());
    std::copy_n(defaults.stddev.begin(), 3, config.normalization.std.begin());
  }
  setup.graph = BuildModel(config.model);
  setup.graph.Freeze(o.freeze);
}

int64_t SampleCount(const TrainSetup& setup, int64_t leaves) {
  if (!setup.synthetic) return setup.dataset.train.size();
  return setup.options.batch.value_or(DefaultBatch(INT64_MAX, leaves)) * kSyntheticBatches;
}

// Checkpoints hold names and paths as JSON: what can't be kept must not be found out at the first
// save.
void CheckUtf8(const char* what, const std::string& text) {
  if (!IsUtf8(text)) FailUsage("the {} '{}' is not valid UTF-8: rename it", what, text);
}

void OpenData(TrainSetup& setup) {
  Options& o = setup.options;
  if (o.data.empty()) FailUsage("--data is missing: a folder of class folders, or 'synthetic'");
  setup.synthetic = o.data == "synthetic";
  if (setup.synthetic) {
    const int64_t classes =
        o.classes > 0 ? o.classes : Resolved(ModelSpec{.name = o.model}).classes;
    for (int64_t c = 0; c < classes; ++c) setup.config.classes.push_back(fmt::format("class{}", c));
    return;
  }
  DatasetOptions options;
  options.val_split = o.val_split;
  options.seed = o.seed;
  options.strict = o.strict_data;
  setup.dataset = OpenDataset(o.data, options);
  setup.config.classes = setup.dataset.classes;
  for (const std::string& name : setup.config.classes) CheckUtf8("class name", name);
  if (setup.dataset.train.empty()) Fail("{} holds no training images", o.data);
  if (o.classes > 0 && o.classes != static_cast<int64_t>(setup.config.classes.size())) {
    FailUsage("--classes is {}, but {} has {} class folders: leave it out", o.classes, o.data,
              setup.config.classes.size());
  }
}

}  // namespace

TrainSetup ResolveTraining(const Options& options, bool resumes) {
  TrainSetup setup;
  CheckUtf8("data folder", options.data);
  CheckUtf8("output folder", options.out.string());
  setup.options = options;
  if (options.model.empty()) FailUsage("--model is missing, such as --model resnet18");
  OpenData(setup);
  // On a small data set more instances would leave each of them too few images a step.
  int most = 0;
  if (!setup.synthetic) {
    const int64_t batch =
        options.batch.value_or(DefaultBatch(setup.dataset.train.size(), INT32_MAX / kDefaultShare));
    most = static_cast<int>(std::max<int64_t>(1, batch / (options.batch ? 1 : kLeastShare)));
  }
  const std::string why = options.batch
                              ? "the batch has one image for each"
                              : fmt::format(
                                    "so few images ask for small batches, and more instances would "
                                    "have less than {} images a step each for batch norm",
                                    kLeastShare);
  try {
    setup.machine = PlanMachine(options, most, why);
  } catch (const UsageError& error) {
    if (!resumes) throw;
    FailUsage("--resume: {}; the run's results depend on its instances: give it its cores again",
              error.what());
  }
  const int64_t leaves = static_cast<int64_t>(setup.machine.plan.seats.size());
  setup.options.instances = static_cast<int>(leaves);
  ResolveModel(setup);
  ResolveBatch(setup, SampleCount(setup, leaves));
  ResolveLength(setup);
  ResolveOptimizer(setup);
  ResolveLoss(setup);
  if (!setup.synthetic) ResolveTransform(setup);
  TrainerOptions& trainer = setup.trainer;
  trainer.seats = setup.machine.plan.seats;
  trainer.memory = std::make_shared<ArenaPool>();  // from tuning to the run
  trainer.domain_nodes = setup.machine.domain_nodes;
  trainer.overlap = setup.machine.overlap;
  trainer.seed = options.seed;
  trainer.blocked = options.layout == "blocked";
  trainer.precision = PrecisionOf(options);
  trainer.winograd = options.winograd;
  setup.eval_micro = std::min(*setup.options.bn_group, kEvalMicroBatch);
  for (const Split* split : {&setup.dataset.val, &setup.dataset.test}) {
    if (split->empty()) continue;
    const BatchPlan plan = EvalBatches(split->size(), static_cast<int>(leaves), setup.eval_micro);
    for (const int64_t size : MicroBatchSizes(plan)) trainer.eval_sizes.push_back(size);
  }
  return setup;
}

}  // namespace parax
