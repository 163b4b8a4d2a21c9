#pragma once

#include <cstdint>

#include "parax/gradserver/kernels_internal.h"
#include "parax/gradserver/optimizer.h"

namespace parax {

// Throws UsageError for options that torch.optim refuses too.
void CheckOptimizer(const OptimizerOptions& options);

// Hot. Of update `iteration` (from 1). `decay`: the parameter's flag; `local_rate`: LARS only.
Coefficients CoefficientsAt(const OptimizerOptions& options, uint64_t iteration, double rate,
                            double clip, bool decay, double local_rate);

// Hot. LARS, equation 6: trust * |w| / (|g| + weight_decay * |w|), norms of the whole tensor. 1
// where the formula says nothing or stands still for ever (|w| = 0: zero-initialised tensors).
double LarsLocalRate(const OptimizerOptions& options, double weight_norm, double gradient_norm);

}  // namespace parax
