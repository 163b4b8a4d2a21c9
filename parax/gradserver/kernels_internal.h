#pragma once

#include <cstddef>

#include "parax/base/isa.h"
#include "parax/gradserver/optimizer.h"

namespace parax {

// What an update multiplies with in one iteration: computed in double, used as float.
struct Coefficients {
  float clip = 1;      // gradients are multiplied by it first
  float rate = 0;      // learning rate; Adam: over its bias correction; LARS: times the local rate
  float momentum = 0;  // SGD, LARS
  float decay = 0;     // weight decay that is added to the gradient
  float keep = 1;      // AdamW: 1 - learning rate * weight decay
  float one_minus_beta1 = 0, beta2 = 0, one_minus_beta2 = 0;
  float inverse_root = 1;  // Adam: 1 / sqrt(1 - beta2^t)
  float epsilon = 0;
};

// Element-wise loops, compiled once an instruction set. Every one rounds each element in the same
// way (no contraction, no reassociation), so all levels give the same bits.
struct Kernels {
  void (*add)(float* out, const float* a, const float* b, size_t n);
  void (*scale)(float* out, const float* a, float factor, size_t n);
  double (*square_sum)(const float* a, size_t n);  // in double, 16 interleaved partial sums
  void (*ema)(float* ema, const float* w, float one_minus_decay, size_t n);
  // `s0`, `s1`: the optimizer's state arrays (StateNames order), unused ones null.
  using Update = void (*)(float* w, float* s0, float* s1, const float* g, size_t n,
                          const Coefficients& c);
  Update sgd, sgd_momentum, sgd_nesterov, adam, lars;

  Update update(const OptimizerOptions& options) const;
};

const Kernels& KernelsAt(Isa level);

}  // namespace parax
