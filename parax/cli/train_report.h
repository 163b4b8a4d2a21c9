#pragma once

#include <string>
#include <vector>

#include "parax/cli/train_setup.h"

namespace parax {

// Weights to fine-tune from (--init-from: a safetensors file, checkpoint or run folder), with a
// fresh head where the classes differ; says so in one line.
TensorMap InitialWeights(const TrainSetup& setup);

// Counts of (label, predicted), row-major.
std::vector<int64_t> ConfusionMatrix(const EvalReport& eval, size_t classes);

// Lines to paste after a run: eval, predict, resume (unless it is finished), loading `weights` (the
// file that eval and predict use) in torchvision.
std::vector<std::string> UsageLines(const TrainSetup& setup, const std::filesystem::path& weights,
                                    bool finished);

// Facts of machine and program for the report.
std::vector<std::string> MachineFacts(const TrainSetup& setup, const MemoryEstimate& memory);

}  // namespace parax
