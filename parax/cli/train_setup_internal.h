#pragma once

#include "parax/cli/train_setup.h"

// Parts of ResolveTraining.
namespace parax {

// A length that is no time, in steps; the setup's steps an epoch and in all must be known.
uint64_t ToSteps(const Span& span, const TrainSetup& setup);
// Optimizer and learning rate; batch and length must be known.
void ResolveOptimizer(TrainSetup& setup);

}  // namespace parax
