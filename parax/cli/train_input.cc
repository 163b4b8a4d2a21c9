#include <fmt/core.h>

#include <algorithm>

#include "parax/base/error.h"
#include "parax/cli/train_setup.h"

namespace parax {
namespace {

constexpr int kPrefetch = 3;  // micro-batches a leaf that may be decoded ahead
// Encoded files are kept in memory when they all fit into this share of it.
constexpr double kEncodedShare = 0.1;

size_t EncodedLimit(const TrainSetup& setup) {
  return static_cast<size_t>(kEncodedShare *
                             static_cast<double>(setup.machine.topology.memory_limit_bytes));
}

int CropPadding(const TrainSetup& setup) {
  const Options& o = setup.options;
  if (o.crop == "none") return 0;
  // As is usual: where evaluation takes small images whole they are padded and cropped; others are
  // cropped and resized.
  const bool small = setup.config.image_size <= 64 && *o.resize == setup.config.image_size;
  const bool pads = o.crop == "pad" || (o.crop == "auto" && small);
  if (!pads) return -1;
  if (o.pad >= setup.config.image_size) {
    FailUsage("--pad is {}; it must be less than the image size, {}", o.pad,
              setup.config.image_size);
  }
  return static_cast<int>(o.pad);
}

PipelineOptions CommonInput(const TrainSetup& setup) {
  PipelineOptions options;
  options.seed = setup.options.seed;
  options.strict = setup.options.strict_data;
  options.workers = setup.machine.workers;
  options.worker_pus = setup.machine.worker_pus();
  options.leaf_os_nodes = setup.machine.leaf_os_nodes();
  options.prefetch = kPrefetch;
  options.classes = static_cast<int64_t>(setup.config.classes.size());
  return options;
}

}  // namespace

void ResolveTransform(TrainSetup& setup) {
  const Options& o = setup.options;
  if (*o.resize < setup.config.image_size) {
    FailUsage("--resize is {}; it must be at least the image size, {}", *o.resize,
              setup.config.image_size);
  }
  TransformOptions& t = setup.transform;
  t = EvalTransform(setup.config, o);
  t.train = true;
  t.min_area = o.scale.at(0);
  t.max_area = o.scale.at(1);
  t.min_aspect = o.ratio.at(0);
  t.max_aspect = o.ratio.at(1);
  t.pad_crop = CropPadding(setup);
  t.flip = o.flip;
  t.erasing = o.random_erasing;
  const auto jitter = [&](size_t i) { return i < o.colour_jitter.size() ? o.colour_jitter[i] : 0; };
  t.brightness = jitter(0);
  t.contrast = jitter(1);
  t.saturation = jitter(2);
  t.hue = jitter(3);
  CheckTransformOptions(t);
  if (o.crop != "auto") return;
  setup.notes.push_back(fmt::format(
      "--crop {} (default where evaluation takes {})", t.pad_crop >= 0 ? "pad" : "random-resized",
      t.eval_resize == t.image_size
          ? fmt::format("the whole image at {} pixels", t.image_size)
          : fmt::format("the middle {} of {} pixels", t.image_size, t.eval_resize)));
}

size_t InputBytes(const TrainSetup& setup) {
  const size_t image = static_cast<size_t>(setup.config.image_size * setup.config.image_size * 3);
  const size_t leaves = setup.trainer.seats.size();
  const size_t slots =
      leaves * static_cast<size_t>(setup.trainer.train.micro_batch) * image * sizeof(float);
  if (setup.synthetic) return slots;
  const size_t limit = EncodedLimit(setup);
  const size_t encoded = setup.dataset.train.total_bytes();
  // The training pipeline keeps what it has decoded while an evaluation runs its own.
  const size_t evaluated =
      setup.trainer.eval_sizes.empty()
          ? 0
          : leaves * static_cast<size_t>(setup.eval_micro) * image * sizeof(float);
  return kPrefetch * (slots + evaluated) + (encoded <= limit ? encoded : 0);
}

std::unique_ptr<InputSource> TrainingInput(const TrainSetup& setup, uint64_t finished_steps,
                                           StopFlag& stop) {
  if (setup.synthetic) {
    return MakeSyntheticSource(setup.config.image_size, setup.config.image_size, 3,
                               static_cast<int64_t>(setup.config.classes.size()),
                               setup.trainer.train, setup.options.seed,
                               setup.machine.leaf_os_nodes());
  }
  PipelineOptions options = CommonInput(setup);
  options.plan = setup.trainer.train;
  options.first_iteration = static_cast<int64_t>(finished_steps);
  options.epochs =
      static_cast<int64_t>((setup.total_steps + setup.steps_per_epoch - 1) / setup.steps_per_epoch);
  options.transform = setup.transform;
  options.mix.mixup = setup.options.mixup;
  options.mix.cutmix = setup.options.cutmix;
  options.mix.smoothing = setup.options.label_smoothing;
  options.keep_encoded_bytes = EncodedLimit(setup);
  options.tracks = DecodeTracks(setup.trainer.trace, options.workers, "training");
  return MakeImagePipeline(setup.dataset.train, options, stop);
}

std::unique_ptr<InputSource> EvaluationInput(const TrainSetup& setup, const Split& split,
                                             StopFlag& stop) {
  const BatchPlan batches = EvalBatches(
      split.size(), static_cast<int>(setup.machine.plan.seats.size()), setup.eval_micro);
  return EvaluationSource(setup.machine, setup.config, setup.options, split, batches, stop,
                          setup.trainer.trace);
}

}  // namespace parax
