#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parax/cli/options.h"
#include "parax/data/dataset.h"
#include "parax/data/transform.h"
#include "parax/engine/trainer.h"
#include "parax/models/resnet.h"
#include "parax/numa/seat.h"

// What train, eval and predict share.
namespace parax {

// The machine as this command will use it.
struct Machine {
  Topology topology;
  SeatPlan plan;
  OverlapOptions overlap;
  std::vector<std::string> notes;  // a line each: the seats' and the schedule policy's
  std::vector<int> domain_nodes;   // OS NUMA node of each domain
  int workers = 1;                 // decoding threads
  std::vector<int> leaf_os_nodes() const;
  std::vector<int> worker_pus() const;  // reserved cores, else every usable PU
};
// `most_instances` > 0: no more than so many, when the user did not ask for a number; `why` says
// so.
Machine PlanMachine(const Options& options, int most_instances = 0,
                    const std::string& why = "there are too few images for more");
// The line and notes that say what a run does with the machine.
void PrintMachine(const Machine& machine);
// "112 instances on 2x56 cores (CPU model)".
std::string MachineLine(const Machine& machine);

// What makes a checkpoint usable on its own: config.json beside the weights.
struct ModelConfig {
  ModelSpec model;  // with sizes resolved
  std::vector<std::string> classes;
  int64_t image_size = 224;
  int64_t resize = 256;  // shorter side before the centre crop
  std::string interpolation = "bilinear";
  Normalization normalization;
};
std::string ToJson(const ModelConfig& config);
// Throws Error naming `where` and the key that is missing or wrong.
ModelConfig ParseModelConfig(const std::string& json, const std::string& where);

// The transform that evaluation of this model uses.
TransformOptions EvalTransform(const ModelConfig& config, const Options& options);
inline constexpr int64_t kEvalMicroBatch = 32;  // images an instance evaluates at once, at most
// Throws UsageError where the CPU has no bf16 and is not to emulate it.
Precision PrecisionOf(const Options& options);
// Batches of evaluation over `samples`: micro-batches of at most `micro`, spread over all leaves.
BatchPlan EvalBatches(int64_t samples, int leaves, int64_t micro);

// A trainer that only evaluates, and its input.
TrainerOptions EvaluatorOptions(const Machine& machine, const ModelConfig& config,
                                const Options& options, const BatchPlan& batches);
std::unique_ptr<InputSource> EvaluationSource(const Machine& machine, const ModelConfig& config,
                                              const Options& options, const Split& split,
                                              const BatchPlan& batches, StopFlag& stop,
                                              Trace* trace = nullptr);
// A track a decoding thread, named after what is decoded; none without a trace.
std::vector<TraceTrack*> DecodeTracks(Trace* trace, int workers, const std::string& what);

// A checkpoint opened for evaluation or prediction: weights (averaged ones when it has them) and
// configuration. `line` says which checkpoint was taken and why.
struct LoadedModel {
  ModelConfig config;
  Graph graph;
  TensorMap weights;
  std::filesystem::path checkpoint;
  std::string state_json;  // of the run; "": not known
  std::string line;
};
LoadedModel LoadModel(const std::string& model);
// Where --model may be either: it is no network's name, and has a slash or is there.
bool IsModelPath(const std::string& model);

}  // namespace parax
