#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parax/layers/kernel.h"
#include "parax/layers/layout.h"

namespace parax {

enum class InitRule : uint8_t { kZeros, kOnes, kKaimingNormalFanOut, kUniformFanIn };

// A trainable tensor of a layer, in canonical terms (PyTorch's shape).
struct ParamSpec {
  std::string name;  // "weight", "bias"
  Dims dims;         // canonical: O, I/groups, H, W for convolutions
  InitRule init = InitRule::kZeros;
  bool decay = true;  // weight decay and LARS scaling apply (not to biases and norms)
};

// A tensor that training updates without gradients: "running_mean" (zeros), "running_var" (ones).
struct StateSpec {
  std::string name;
  Dims dims;
  float initial = 0;
};

enum class Mode : uint8_t { kTraining, kEvaluation };

// How a kernel argument is found. `index` counts within the role.
enum class Role : uint8_t {
  kInput,       // activation of input `index`
  kOutput,      // activation of the (single) output
  kOutputGrad,  // gradient of the output
  kInputGrad,   // gradient of input `index`; written in full
  kParamForm,   // CompiledLayer::forms[index], read
  kParamGrad,   // gradient of parameter `index` in CompiledLayer::grads[index]; written in full
  kState,       // state `index` (running statistics), read
  kSaved,       // CompiledLayer::saved[index]: written in forward, read in backward
  kTemp,        // CompiledLayer::temps[index]: lives for one forward or backward pass of the layer
  kScratch,     // the kernel's own scratch memory
  kLabels,      // int32, one an image
  kTargets,     // float probabilities, images x classes, row-major
  kLoss,        // LossResult of the micro-batch, written
};

struct Argument {
  Role role;
  int index = 0;
  bool write = false;
};

enum class OpKind : uint8_t { kForward, kBackwardData, kBackwardWeights, kBackwardBoth };
constexpr const char* PassName(OpKind kind) {  // for tables
  constexpr const char* kNames[] = {"forward", "backward data", "backward weights", "backward"};
  return kNames[static_cast<size_t>(kind)];
}

struct CompiledOp {
  std::shared_ptr<const Kernel> kernel;
  std::vector<Argument> arguments;
  OpKind kind = OpKind::kForward;
  double flops = 0;
  double bytes = 0;  // least traffic: each argument read or written once
  // Argument that the written argument `overwrites_by` may share memory with when it dies here;
  // -1: none.
  int in_place_from = -1;
  int in_place_to = -1;
};

// A packed copy of a parameter that kernels read.
struct ParamFormSpec {
  int param = 0;
  Layout layout;
};

// A layer at one batch size, mode and choice of layouts.
struct CompiledLayer {
  std::vector<Layout> inputs;  // as the layer wants them: the plan reorders where they differ
  Layout output;
  std::vector<Layout> grads;         // one a parameter; same element count in every plan
  std::vector<ParamFormSpec> forms;  // what kParamForm indexes
  std::vector<size_t> saved;         // bytes
  std::vector<size_t> temps;         // bytes
  std::vector<CompiledOp> forward;
  std::vector<CompiledOp> backward;  // empty in evaluation
  bool output_is_input = false;      // a view: no op, output shares input 0's memory, gradients too
  bool grads_alias_output_grad = false;  // every input's gradient IS the output's (plain add)
  // All inputs have one gradient (add with relu): backward writes only that of the first input
  // whose gradient is needed; the others' are the same memory.
  bool input_grads_equal = false;
  // Batch statistics of a training-mode norm layer: saved[] indices of mean and variance (biased),
  // float, one a channel, over `statistics_count` values each; -1: none.
  int saved_mean = -1;
  int saved_variance = -1;
  double statistics_count = 0;

  // Of the forward ops, then the backward ones.
  const CompiledOp& op(size_t i) const {
    return i < forward.size() ? forward[i] : backward[i - forward.size()];
  }
};

struct CompileRequest {
  Mode mode = Mode::kTraining;
  std::vector<Layout> inputs;         // as producers make them
  std::vector<bool> need_input_grad;  // one an input
  bool need_param_grad = true;        // false: frozen
  bool blocked = false;               // let oneDNN choose the output's layout; else channels last
  bool winograd = true;               // prefer Winograd convolutions where they pay
  bool emulate = false;               // bf16 layers compute with float32 kernels
  int threads = 1;                    // OpenMP threads the kernels will run with
  // Layouts fixed by an earlier plan of the same layer (other batch size or mode): kernels must be
  // compiled against these; empty: free choice.
  std::vector<Layout> fixed_grads;
  std::vector<ParamFormSpec> fixed_forms;
  // Implementation wanted for the ops in order (forward, then backward), by name as in
  // Kernel::implementation(); empty or missing entry: the layer's own choice. An unavailable one
  // throws Error.
  std::vector<std::string> implementations;
};

// Result of the loss layer for one micro-batch: sums, not means.
struct LossResult {
  double loss_sum = 0;    // sum over images of (class weight x) loss
  double weight_sum = 0;  // what the sum is divided by for the mean: images, or their class weights
  int64_t correct1 = 0;
  int64_t correct5 = 0;
  int64_t count = 0;
  bool finite = true;

  // Means; 0 over no images.
  double mean_loss() const { return weight_sum == 0 ? 0 : loss_sum / weight_sum; }
  double accuracy() const { return Share(correct1); }
  double top5() const { return Share(correct5); }

  LossResult& operator+=(const LossResult& part) {
    loss_sum += part.loss_sum;
    weight_sum += part.weight_sum;
    correct1 += part.correct1;
    correct5 += part.correct5;
    count += part.count;
    finite &= part.finite;
    return *this;
  }

 private:
  double Share(int64_t part) const {
    return count == 0 ? 0 : static_cast<double>(part) / static_cast<double>(count);
  }
};

struct BatchNormOptions;

// The immutable rule of one layer: shapes, parameters, and how it compiles into kernels.
class Layer {
 public:
  virtual ~Layer() = default;
  virtual std::string kind() const = 0;  // "conv", "batch_norm", ...
  // Kind and options: with equal signatures, parameters and inputs, layers compile alike.
  virtual std::string Signature() const { return kind(); }
  // Output's logical sizes. Throws Error when the inputs do not fit.
  virtual Dims OutputDims(const std::vector<Dims>& inputs) const = 0;
  virtual std::vector<ParamSpec> Params() const { return {}; }
  virtual std::vector<StateSpec> States() const { return {}; }
  // Setup code; call on a thread with the OpenMP thread count under which the kernels will run.
  virtual CompiledLayer Compile(const CompileRequest& request) const = 0;
  // What a batch norm does; null: this layer is none.
  virtual const BatchNormOptions* norm() const { return nullptr; }
  // This layer and the batch norm that alone reads its output as one layer, for evaluation: inputs
  // are this layer's, then the norm's residual; parameters and states likewise this layer's, then
  // the norm's. Null: no kernel here does both.
  virtual std::shared_ptr<const Layer> WithNorm(const BatchNormOptions& norm) const;
  // Every implementation name that op `op` of this layer could take (for tests and the tuner).
  virtual std::vector<std::string> Candidates(const CompileRequest& request, int op) const;
};

}  // namespace parax
