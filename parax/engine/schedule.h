#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace parax {

enum class ScheduleKind : uint8_t { kConstant, kStep, kCosine, kLinear, kOneCycle };

// The learning rate as a function of the iteration alone.
struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::kCosine;
  double peak = 0.1;                 // --lr
  uint64_t iterations = 1;           // of the whole run
  uint64_t warmup = 0;               // iterations of linear rise from 0 to the peak
  double final_factor = 0;           // cosine, linear: last rate / peak
  std::vector<uint64_t> milestones;  // step: iterations after which the rate is multiplied ...
  double gamma = 0.1;                // ... by this
};

// Rate of iteration t = 1 .. iterations. During warm-up peak * (t - 1) / warmup: the first
// iteration has rate 0 as in a linear schedule that is evaluated before the step. After it, with
// progress p = (t - 1 - warmup) / (iterations - warmup) in [0, 1): cosine: (1 + cos(pi p)) / 2;
// linear: 1 - p; one-cycle: Smith & Topin (2018) with cosine legs: up from peak / 25 over the
// warm-up, then down to peak / 25e4.
double LearningRate(const ScheduleOptions& options, uint64_t iteration);

// "constant", "step", "cosine", "linear", "onecycle"; throws UsageError naming the nearest.
ScheduleKind ParseSchedule(std::string_view name);

}  // namespace parax
