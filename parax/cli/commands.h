#pragma once

#include "parax/cli/options.h"
#include "parax/cli/train.h"

namespace parax {

// Each returns the exit status, and throws UsageError or Error for what can't be.
int RunEval(const Options& options);
int RunPredict(const Options& options);
int RunPlan(const Options& options);
int RunTune(const Options& options);
int RunBench(const Options& options);
int RunSim(const Options& options);
int RunTopo(const Options& options);
int RunCommand(const Options& options);  // the one that options.command names

// Throws UsageError for values that no machine or data set could make right: a model that does not
// exist, a probability above 1 ... Nobody checks these again: options go through here first.
void CheckValues(const Options& options);
// A line for each flag that is not at its default and that others leave without effect, saying what
// it needs.
std::vector<std::string> WithoutEffect(const Options& options);

}  // namespace parax
