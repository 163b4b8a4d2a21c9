#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace parax {

enum class OptimizerKind : uint8_t { kSgd, kAdam, kAdamW, kLars };

// Formulas: SGD, Adam, AdamW as torch.optim (2.x); LARS: You, Gitman, Ginsburg, "Large batch
// training of convolutional networks" (2017), equation 6 with momentum as there.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kSgd;
  double momentum = 0.9;                              // SGD, LARS
  bool nesterov = false;                              // SGD
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // Adam, AdamW
  double weight_decay = 0;
  double trust = 0.001;  // LARS: the coefficient eta
};

// Number of state arrays an optimizer keeps a parameter, and their names in checkpoints
// ("momentum_buffer"; "exp_avg", "exp_avg_sq").
std::vector<std::string> StateNames(const OptimizerOptions& options);

}  // namespace parax
