#pragma once

#include "parax/cli/options.h"
#include "parax/cli/train.h"

namespace parax {

// Each returns the exit status, and throws UsageError or Error for what can't be.
int RunEval(const Options& options);
int RunPredict(const Options& options);
int RunPlan(const Options& options);
int RunTopo(const Options& options);
int RunCommand(const Options& options);  // the one that options.command names

// Throws UsageError for names that no machine or data set could make right: a model, schedule or
// optimizer that does not exist ...
void CheckNames(const Options& options);

}  // namespace parax
