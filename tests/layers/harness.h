#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parax/layers/layers.h"

namespace parax::testing {

using Values = std::vector<float>;  // one tensor in canonical (row-major logical) order

// Reproducible values in [low, high).
Values RandomValues(size_t count, uint64_t stream, double low = -1, double high = 1);
// A random order of distinct values `gap` apart and no nearer than gap/2 to zero: with a step below
// gap/2, central differences cross no kink of relu and max-pool.
Values SpreadValues(size_t count, uint64_t stream, double gap);

// Every input channels last, all gradients wanted.
CompileRequest Request(const std::vector<Dims>& inputs, Mode mode = Mode::kTraining,
                       bool blocked = false, int threads = 1);

// Canonical values to and from the memory order of a layout (padding is zero).
std::vector<float> Pack(const Layout& layout, const Values& values);
// The same in the layout's own type, rounded, and back.
std::vector<std::byte> PackBytes(const Layout& layout, const Values& values);
Values Unpack(const Layout& layout, const void* memory);
// `values` as bf16 holds them.
Values Rounded(Values values);

// One layer, compiled and bound to buffers of its own as a plan would do it. Compiles and runs on a
// thread with request.threads OpenMP threads. Buffers that the kernels must write are filled with
// NaN first, memory behind every buffer is watched, and padding that comes back non-zero is a test
// failure.
class LayerRun {
 public:
  // `in_place`: let ops overwrite what they may (CompiledOp::in_place_from) when nothing reads it
  // later.
  LayerRun(LayerPtr layer, CompileRequest request, bool in_place = false);
  ~LayerRun();

  // What goes in; filled with random values of the right size (states with their initial values).
  std::vector<Values> inputs;
  std::vector<Values> params;
  std::vector<Values> states;
  Values output_grad;
  std::vector<int32_t> labels;      // one an image, zeros at first
  Values targets;                   // images x classes, for the loss on probabilities
  std::vector<int64_t> sample_ids;  // 0, 1, ... at first
  RunContext context;               // seed 1, iteration 1

  // Both return the first outcome that is not kOk. Backward needs a Forward before it.
  Outcome Forward();
  Outcome Backward();

  // What came out.
  Values output() const;
  Values input_grad(int input) const;
  Values param_grad(int param) const;
  Values saved(int index) const;  // as floats
  const LossResult& loss() const { return loss_; }

  const Layer& layer() const { return *layer_; }
  const CompiledLayer& compiled() const { return compiled_; }
  const CompileRequest& request() const { return request_; }

 private:
  struct Buffer;
  using Key = std::pair<Role, int>;
  Buffer& Find(Role role, int index) const;
  void Allocate(Role role, int index, size_t bytes);
  void Share(Role role, int index, Role with, int with_index);
  bool ReadAfter(const Argument& argument, const CompiledOp& op) const;
  void BindAll(bool in_place);
  void CheckMemory() const;
  void CheckPadding(const Layout& layout, Role role, int index) const;
  Outcome RunAll(std::vector<std::unique_ptr<BoundKernel>>& kernels);

  LayerPtr layer_;
  CompileRequest request_;
  CompiledLayer compiled_;
  LossResult loss_;
  std::map<Key, std::shared_ptr<Buffer>> buffers_;
  std::vector<std::unique_ptr<BoundKernel>> forward_, backward_;
};

struct JacobianOptions {
  double step = 1e-2;         // of the central differences
  double tolerance = 2e-3;    // relative to the tensor's largest gradient
  size_t most_checked = 300;  // elements a tensor, evenly spread
};

// Compares every gradient the run's Backward gives (inputs and parameters) with central differences
// of its Forward, for the scalar sum(output_grad * output), or loss_sum for a loss layer.
void ExpectGradientsMatch(LayerRun& run, const JacobianOptions& options = {});

// |a - b| <= tolerance * max |b| everywhere; says where not.
void ExpectNear(const Values& actual, const Values& expected, double tolerance,
                const std::string& what);
void ExpectSameBits(const Values& actual, const Values& expected, const std::string& what);

}  // namespace parax::testing
