#include "parax/engine/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "parax/base/text.h"

namespace parax {
namespace {

const std::vector<std::string> kNames = {"constant", "step", "cosine", "linear", "onecycle"};

double CosineBetween(double from, double to, double p) {
  return to + (from - to) * (1 + std::cos(std::numbers::pi * p)) / 2;
}

}  // namespace

double LearningRate(const ScheduleOptions& o, uint64_t iteration) {
  const double t = static_cast<double>(iteration - 1);
  double warmup = static_cast<double>(o.warmup);
  const double total = static_cast<double>(o.iterations);
  if (o.kind == ScheduleKind::kOneCycle) {
    const double low = o.peak / 25;
    if (t < warmup) return CosineBetween(low, o.peak, t / warmup);
    return CosineBetween(o.peak, low / 1e4, std::min(1.0, (t - warmup) / (total - warmup)));
  }
  if (t < warmup) return o.peak * t / warmup;
  const double p = total > warmup ? std::min(1.0, (t - warmup) / (total - warmup)) : 1.0;
  const double last = o.peak * o.final_factor;
  switch (o.kind) {
    case ScheduleKind::kConstant:
    case ScheduleKind::kOneCycle:
      return o.peak;
    case ScheduleKind::kStep: {
      const auto passed = std::count_if(o.milestones.begin(), o.milestones.end(),
                                        [&](uint64_t m) { return iteration > m; });
      return o.peak * std::pow(o.gamma, static_cast<double>(passed));
    }
    case ScheduleKind::kCosine:
      return CosineBetween(o.peak, last, p);
    case ScheduleKind::kLinear:
      return last + (o.peak - last) * (1 - p);
  }
  return o.peak;
}

ScheduleKind ParseSchedule(std::string_view name) {
  return static_cast<ScheduleKind>(ChoiceOf("learning-rate schedule", name, kNames, "cosine"));
}

}  // namespace parax
