#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <tuple>

#include "parax/base/error.h"
#include "parax/cli/commands.h"
#include "parax/cli/flags_internal.h"
#include "parax/cli/train_setup.h"
#include "parax/engine/schedule.h"
#include "parax/models/resnet.h"
#include "parax/sched/policy.h"

namespace parax {
namespace {

bool IsOneOf(const std::string& value, std::initializer_list<const char*> known) {
  return std::find(known.begin(), known.end(), value) != known.end();
}

void OneOf(const char* flag, const std::string& value, std::initializer_list<const char*> known) {
  if (IsOneOf(value, known)) return;
  FailUsage("--{} is '{}'; it can be {}", flag, value, fmt::join(known, ", "));
}

template <typename T>
void AtLeast(const char* flag, T value, T least) {
  if (value < least) FailUsage("--{} is {}; it must be {} or more", flag, value, least);
}
template <typename T>
void AtLeast(const char* flag, const std::optional<T>& value, T least) {
  if (value) AtLeast(flag, *value, least);
}

void Below1(const char* flag, double value) {
  if (value < 0 || value >= 1) FailUsage("--{} is {}; it must be in [0, 1)", flag, value);
}
void Probability(const char* flag, double value) {
  if (value < 0 || value > 1) FailUsage("--{} is {}; it must be in [0, 1]", flag, value);
}

// 0 < min <= max.
void Range(const char* flag, const std::vector<double>& v, double most) {
  if (v.size() != 2 || !(v[0] > 0) || v[1] < v[0] || v[1] > most) {
    FailUsage("--{} is {}; it must be two numbers, MIN and MAX, above 0{}", flag, fmt::join(v, " "),
              most == 1 ? " and at most 1" : "");
  }
}

void CheckTexts(const Options& o) {
  OneOf("precision", o.precision, {"fp32", "bf16"});
  if (o.emulate && o.precision != "bf16") FailUsage("--emulate is for --precision bf16: add that");
  OneOf("layout", o.layout, {"auto", "nhwc", "blocked"});
  OneOf("tune", o.tune, {"auto", "off"});
  OneOf("update-policy", o.update_policy, {"commit", "eager"});
  (void)ParseSchedulePolicy(o.schedule_policy);
  if (o.sim_policy != "all") (void)ParseSchedulePolicy(o.sim_policy);
  OneOf("best-metric", o.best_metric, {"accuracy", "loss"});
  OneOf("crop", o.crop, {"auto", "random-resized", "pad", "none"});
  OneOf("interpolation", o.interpolation, {"bilinear", "bicubic"});
  OneOf("split", o.split, {"val", "test", "train"});
  OneOf("format", o.format, {"csv", "json"});
  OneOf("mode", o.mode, {"train", "infer"});
  if (!o.normalise.empty()) (void)ParseNormalization(o.normalise);
  (void)ParseSchedule(o.lr_schedule);
  (void)ParseOptimizer(o.optimizer);
}

void CheckNumbers(const Options& o) {
  for (const auto& [flag, value] : {std::pair{"keep", o.keep}, {"top", o.top}}) {
    AtLeast(flag, value, 1);
  }
  AtLeast("cores-per-instance", o.cores_per_instance, 0);
  AtLeast("instances", o.instances, 0);
  AtLeast("gate", o.gate, 0);
  if (!(o.defer_memory >= 0 && o.defer_memory <= 1)) {
    FailUsage("--defer-memory is {}; it must be in [0, 1]", o.defer_memory);
  }
  AtLeast("decode-cores", o.decode_cores, 0);
  AtLeast("workers", o.workers, 0);
  if (o.workers > 4096) FailUsage("--workers is {}; at most 4096", o.workers);
  if (o.classes > 1'000'000) FailUsage("--classes is {}; at most 1000000", o.classes);
  AtLeast("patience", o.patience, 0);
  AtLeast<int64_t>("classes", o.classes, 0);
  AtLeast<int64_t>("pad", o.pad, 0);
  for (const auto& [flag, value, most] : {std::tuple{"batch", o.batch, int64_t{1} << 30},
                                          {"bn-group", o.bn_group, int64_t{1} << 30},
                                          {"micro-batch", o.micro_batch, int64_t{1} << 16}}) {
    AtLeast<int64_t>(flag, value, 1);
    if (value > most) FailUsage("--{} is {}; at most {}", flag, *value, most);
  }
  AtLeast<uint64_t>("max-steps", o.max_steps, 1);
  for (const auto& [flag, value] : {std::pair{"image-size", o.image_size}, {"resize", o.resize}}) {
    AtLeast<int64_t>(flag, value, 1);
    if (value > kMostImageSize) FailUsage("--{} is {}; at most {}", flag, *value, kMostImageSize);
  }
  if (o.epochs && !(*o.epochs > 0)) FailUsage("--epochs is {}; it must be above 0", *o.epochs);
  for (const auto& [flag, value] : {std::pair{"lr", o.lr.value_or(0)},
                                    {"lr-gamma", o.lr_gamma},
                                    {"lr-final", o.lr_final},
                                    {"weight-decay", o.weight_decay.value_or(0)},
                                    {"clip-norm", o.clip_norm},
                                    {"mixup", o.mixup},
                                    {"cutmix", o.cutmix}}) {
    AtLeast(flag, value, 0.0);
  }
  for (const auto& [flag, value] : {std::pair{"momentum", o.momentum},
                                    {"beta1", o.beta1},
                                    {"beta2", o.beta2},
                                    {"ema", o.ema},
                                    {"label-smoothing", o.label_smoothing},
                                    {"dropout", o.dropout},
                                    {"val-split", o.val_split.value_or(0)}}) {
    Below1(flag, value);
  }
  Probability("flip", o.flip);
  Probability("random-erasing", o.random_erasing);
  Range("scale", o.scale, 1);
  Range("ratio", o.ratio, INFINITY);
  if (o.colour_jitter.size() > 4) FailUsage("--colour-jitter takes at most four numbers");
  for (const double strength : o.colour_jitter) AtLeast("colour-jitter", strength, 0.0);
  if (o.colour_jitter.size() == 4 && o.colour_jitter[3] > 0.5) {
    FailUsage("--colour-jitter is {}; its fourth number, the hue's, must be 0.5 or less",
              fmt::join(o.colour_jitter, " "));
  }
  for (const double epoch : o.lr_steps) AtLeast("lr-steps", epoch, 0.0);
  if (!std::ranges::is_sorted(o.lr_steps)) {
    FailUsage("--lr-steps is {}; the epochs must rise", fmt::join(o.lr_steps, " "));
  }
  for (const auto& [flag, value] :
       {std::pair{"epsilon", o.epsilon}, {"trust", o.trust}, {"seconds", o.seconds}}) {
    if (!(value > 0)) FailUsage("--{} is {}; it must be above 0", flag, value);
  }
}

void CheckCombinations(const Options& o) {
  if (o.warmup && o.warmup->unit == Span::Unit::kSeconds) {
    FailUsage("--warmup can't be a time: use steps, ep or %");
  }
  if (o.clip_norm > 0 && o.update_policy == "eager") {
    FailUsage("--clip-norm needs --update-policy commit");
  }
  if (o.schedule_policy == "barriered" && o.cores_per_instance > 1) {
    FailUsage(
        "--schedule-policy barriered takes all cores of a NUMA domain for each instance: leave "
        "out --cores-per-instance {}",
        o.cores_per_instance);
  }
  if (o.command == "train" && o.lr_schedule == "step" && o.lr_steps.empty()) {
    FailUsage("--lr-schedule step needs --lr-steps, such as --lr-steps 30 60 80");
  }
  if (o.optimizer == "sgd" && o.nesterov && o.momentum == 0) {
    FailUsage("--nesterov needs a --momentum above 0");
  }
}

}  // namespace

std::vector<std::string> WithoutEffect(const Options& o) {
  const bool resizes = o.crop == "auto" || o.crop == "random-resized";
  const bool pads = o.crop == "auto" || o.crop == "pad";
  const struct {
    const char *flag, *needs;
    bool works;
  } rules[] = {
      {"lr-steps", "--lr-schedule step", IsOneOf(o.lr_schedule, {"step"})},
      {"lr-gamma", "--lr-schedule step", IsOneOf(o.lr_schedule, {"step"})},
      {"lr-final", "--lr-schedule cosine or linear", IsOneOf(o.lr_schedule, {"cosine", "linear"})},
      {"momentum", "--optimizer sgd or lars", IsOneOf(o.optimizer, {"sgd", "lars"})},
      {"nesterov", "--optimizer sgd", IsOneOf(o.optimizer, {"sgd"})},
      {"beta1", "--optimizer adam or adamw", IsOneOf(o.optimizer, {"adam", "adamw"})},
      {"beta2", "--optimizer adam or adamw", IsOneOf(o.optimizer, {"adam", "adamw"})},
      {"epsilon", "--optimizer adam or adamw", IsOneOf(o.optimizer, {"adam", "adamw"})},
      {"trust", "--optimizer lars", IsOneOf(o.optimizer, {"lars"})},
      {"pad", "--crop pad", pads},
      {"scale", "--crop random-resized", resizes},
      {"ratio", "--crop random-resized", resizes},
      {"bn-group", "--mode train", IsOneOf(o.mode, {"train"})},
      {"optimizer", "--mode train", IsOneOf(o.mode, {"train"})},
      {"tune", "--mode train", IsOneOf(o.mode, {"train"})},
      {"update-policy", "--mode train", IsOneOf(o.mode, {"train"})},
      {"gate", "--schedule-policy gate or gate+defer",
       IsOneOf(o.schedule_policy, {"gate", "gate+defer"})},
      {"defer-memory", "--schedule-policy gate+defer", IsOneOf(o.schedule_policy, {"gate+defer"})},
      {"patience", "--eval-every", !(o.eval_every && o.eval_every->value == 0)}};
  std::vector<std::string> lines;
  const Options defaults;
  for (const auto& rule : rules) {
    const Flag* flag = FindFlag(rule.flag, kTrain);
    if (rule.works || flag->toml(o) == flag->toml(defaults)) continue;
    lines.push_back(fmt::format("--{} has no effect without {}", rule.flag, rule.needs));
  }
  return lines;
}

void CheckValues(const Options& options) {
  const bool builds = IsOneOf(options.command, {"train", "plan", "tune", "sim"}) ||
                      (options.command == "bench" && !IsModelPath(options.model));
  if (builds && !options.model.empty()) (void)Resolved(ModelSpec{.name = options.model});
  CheckTexts(options);
  CheckNumbers(options);
  CheckCombinations(options);
}

}  // namespace parax
