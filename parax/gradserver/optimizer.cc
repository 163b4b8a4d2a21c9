#include "parax/gradserver/optimizer.h"

#include <cmath>

#include "parax/base/error.h"
#include "parax/gradserver/optimizer_internal.h"

namespace parax {

std::vector<std::string> StateNames(const OptimizerOptions& options) {
  switch (options.kind) {
    case OptimizerKind::kSgd:
      if (options.momentum == 0) return {};
      return {"momentum_buffer"};
    case OptimizerKind::kLars:
      return {"momentum_buffer"};
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      return {"exp_avg", "exp_avg_sq"};
  }
  return {};
}

void CheckOptimizer(const OptimizerOptions& options) {
  const auto in_unit = [](double x) { return x >= 0 && x < 1; };
  const OptimizerKind kind = options.kind;
  if (kind == OptimizerKind::kAdam || kind == OptimizerKind::kAdamW) {
    if (!in_unit(options.beta1) || !in_unit(options.beta2)) {
      FailUsage("Adam's betas must be in [0, 1), not {} and {}", options.beta1, options.beta2);
    }
    if (!(options.epsilon > 0))
      FailUsage("Adam's epsilon must be above 0, not {}", options.epsilon);
  } else if (!in_unit(options.momentum)) {
    FailUsage("momentum must be in [0, 1), not {}", options.momentum);
  }
  if (kind == OptimizerKind::kSgd && options.nesterov && options.momentum == 0) {
    FailUsage("Nesterov needs a momentum above 0");
  }
  if (!(options.weight_decay >= 0)) {
    FailUsage("weight decay must be 0 or more, not {}", options.weight_decay);
  }
  if (kind == OptimizerKind::kLars && !(options.trust > 0)) {
    FailUsage("LARS' trust coefficient must be above 0, not {}", options.trust);
  }
}

Coefficients CoefficientsAt(const OptimizerOptions& options, uint64_t iteration, double rate,
                            double clip, bool decay, double local_rate) {
  const double weight_decay = decay ? options.weight_decay : 0;
  Coefficients c;
  c.clip = static_cast<float>(clip);
  c.rate = static_cast<float>(rate);
  c.momentum = static_cast<float>(options.momentum);
  c.decay = static_cast<float>(weight_decay);
  switch (options.kind) {
    case OptimizerKind::kSgd:
      break;
    case OptimizerKind::kLars:
      c.rate = static_cast<float>(rate * local_rate);
      break;
    case OptimizerKind::kAdamW:
      c.keep = static_cast<float>(1 - rate * weight_decay);
      c.decay = 0;
      [[fallthrough]];
    case OptimizerKind::kAdam: {
      const double t = static_cast<double>(iteration);
      c.rate = static_cast<float>(rate / (1 - std::pow(options.beta1, t)));
      c.inverse_root = static_cast<float>(1 / std::sqrt(1 - std::pow(options.beta2, t)));
      c.one_minus_beta1 = static_cast<float>(1 - options.beta1);
      c.beta2 = static_cast<float>(options.beta2);
      c.one_minus_beta2 = static_cast<float>(1 - options.beta2);
      c.epsilon = static_cast<float>(options.epsilon);
      break;
    }
  }
  return c;
}

double LarsLocalRate(const OptimizerOptions& options, double weight_norm, double gradient_norm) {
  const double below = gradient_norm + options.weight_decay * weight_norm;
  if (weight_norm == 0 || below == 0) return 1;
  return options.trust * weight_norm / below;
}

}  // namespace parax
