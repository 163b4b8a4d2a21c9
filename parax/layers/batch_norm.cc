#include <fmt/core.h>

#include <vector>

#include "parax/layers/batch_norm_passes_internal.h"
#include "parax/layers/finish_internal.h"
#include "parax/layers/layers.h"
#include "parax/layers/panels_internal.h"

namespace parax {
namespace {

// Batch norm, with the residual's addition and the ReLU behind it in the same passes, and the same
// bits whatever the instruction set; see docs/design/layers.md.
class BatchNormLayer final : public Layer {
 public:
  explicit BatchNormLayer(const BatchNormOptions& options) : options_(options) {
    if (options.channels < 1) Fail("batch norm of {} channels", options.channels);
  }
  std::string kind() const override { return "batch_norm"; }
  const BatchNormOptions* norm() const override { return &options_; }
  std::string Signature() const override {
    return fmt::format("batch_norm{}{}{}", options_.add ? " add" : "", options_.relu ? " relu" : "",
                       options_.frozen ? " frozen" : "");
  }

  Dims OutputDims(const std::vector<Dims>& inputs) const override {
    RequireInputs(*this, inputs, options_.add ? 2 : 1);
    if (options_.add && inputs[0] != inputs[1]) {
      Fail("batch norm: the residual is {}, the input {}", Layout::Plain(inputs[1]).ToString(),
           Layout::Plain(inputs[0]).ToString());
    }
    if (inputs[0].size() != 4 || inputs[0][1] != options_.channels) {
      Fail("batch norm: wants N x {} x H x W", options_.channels);
    }
    return inputs[0];
  }

  std::vector<ParamSpec> Params() const override {
    const Dims dims = {options_.channels};
    const InitRule scale = options_.zero_init_scale ? InitRule::kZeros : InitRule::kOnes;
    return {{"weight", dims, scale, false}, {"bias", dims, InitRule::kZeros, false}};
  }

  std::vector<StateSpec> States() const override {
    const Dims dims = {options_.channels};
    return {{"running_mean", dims, 0}, {"running_var", dims, 1}};
  }

  CompiledLayer Compile(const CompileRequest& request) const override;

 private:
  struct Needs {
    bool dx = false, params = false, residual = false;
  };
  // `bits`: saved[] index of the ReLU's mask, -1: none. `bytes` of both ops count activations.
  CompiledOp ForwardOp(const NormPasses& norm, bool training, int bits) const;
  CompiledOp BackwardOp(const NormPasses& norm, const Needs& needs, int bits) const;
  static std::string Implementation(const NormPasses& norm);

  BatchNormOptions options_;
};

CompiledLayer BatchNormLayer::Compile(const CompileRequest& request) const {
  std::vector<Dims> dims;
  for (const Layout& input : request.inputs) dims.push_back(input.dims());
  OutputDims(dims);
  RequireFloat(*this, request.inputs);
  const bool training = request.mode == Mode::kTraining;
  Panels panels;
  CompiledLayer compiled;
  compiled.output = UsableLayout(request.inputs[0], panels);
  compiled.inputs.assign(request.inputs.size(), compiled.output);
  NormPasses norm;
  norm.shape = {panels.images, panels.blocks, panels.height * panels.width_pixels, panels.lanes,
                panels.channels};
  norm.isa = CurrentIsa();
  norm.threads = request.threads;
  norm.epsilon = options_.epsilon;
  norm.relu = options_.relu;
  norm.fixed = !training || options_.frozen || !request.need_param_grad;
  const Layout row = Layout::Plain({options_.channels});
  compiled.grads = {row, row};
  compiled.forms = {{0, row}, {1, row}};
  compiled.temps = {norm.scratch_bytes()};
  if (!norm.fixed) {
    const size_t stat_bytes = static_cast<size_t>(options_.channels) * sizeof(float);
    compiled.saved = {stat_bytes, stat_bytes};
    compiled.saved_mean = 0;
    compiled.saved_variance = 1;
    compiled.statistics_count = norm.shape.values();
  }
  const auto& need = request.need_input_grad;
  Needs needs;
  needs.dx = training && need.at(0);
  needs.params = training && request.need_param_grad;
  needs.residual = training && options_.add && need.at(1);
  const bool backward = needs.dx || needs.params || needs.residual;
  // With a residual the mask cannot be computed anew from x alone.
  int bits = -1;
  if (backward && options_.add && options_.relu) {
    bits = static_cast<int>(compiled.saved.size());
    compiled.saved.push_back(norm.bit_bytes());
  }
  compiled.forward = {ForwardOp(norm, training, bits)};
  if (backward) compiled.backward = {BackwardOp(norm, needs, bits)};
  for (auto* ops : {&compiled.forward, &compiled.backward}) {
    for (CompiledOp& op : *ops) op.bytes *= static_cast<double>(compiled.output.bytes());
  }
  return compiled;
}

// An unused argument stands for the scratch memory, so that every pass has the same list.
constexpr Argument kScratch = {Role::kTemp, 0, true};

std::string BatchNormLayer::Implementation(const NormPasses& norm) {
  return fmt::format("parax:batch_norm:{}", Name(norm.isa));
}

CompiledOp BatchNormLayer::ForwardOp(const NormPasses& norm, bool training, int bits) const {
  const bool add = options_.add;
  const Role statistics = norm.fixed ? Role::kState : Role::kSaved;
  const auto run = [norm, add, bits](const Addresses<9>& p, const RunContext&) {
    norm.Run(NormPasses::Forward{.x = Floats(p[0]),
                                 .residual = add ? Floats(p[1]) : nullptr,
                                 .weight = Floats(p[2]),
                                 .bias = Floats(p[3]),
                                 .mean = Floats(p[4]),
                                 .variance = Floats(p[5]),
                                 .y = Floats(p[6]),
                                 .bits = bits >= 0 ? static_cast<uint8_t*>(p[7]) : nullptr,
                                 .scratch = Floats(p[8])});
    return Outcome::kOk;
  };
  CompiledOp op = OwnOp(OpKind::kForward, MakeOwnKernel<9>(Implementation(norm), run),
                        {{Role::kInput, 0},
                         add ? Argument{Role::kInput, 1} : kScratch,
                         {Role::kParamForm, 0},
                         {Role::kParamForm, 1},
                         {statistics, 0, !norm.fixed},
                         {statistics, 1, !norm.fixed},
                         {Role::kOutput, 0, true},
                         bits >= 0 ? Argument{Role::kSaved, bits, true} : kScratch,
                         kScratch},
                        (norm.fixed ? 2 : 3) + (add ? 1 : 0));
  if (!training || add) {  // training reads x again, but not the residual
    op.in_place_from = training ? 1 : 0;
    op.in_place_to = 6;
  }
  return op;
}

CompiledOp BatchNormLayer::BackwardOp(const NormPasses& norm, const Needs& needs, int bits) const {
  const Role statistics = norm.fixed ? Role::kState : Role::kSaved;
  const auto run = [norm, needs, bits](const Addresses<12>& p, const RunContext&) {
    norm.Run(NormPasses::Backward{.x = Floats(p[0]),
                                  .dy = Floats(p[1]),
                                  .weight = Floats(p[2]),
                                  .bias = Floats(p[3]),
                                  .mean = Floats(p[4]),
                                  .variance = Floats(p[5]),
                                  .bits = bits >= 0 ? static_cast<uint8_t*>(p[6]) : nullptr,
                                  .dresidual = needs.residual ? Floats(p[7]) : nullptr,
                                  .dx = needs.dx ? Floats(p[8]) : nullptr,
                                  .dweight = needs.params ? Floats(p[9]) : nullptr,
                                  .dbias = needs.params ? Floats(p[10]) : nullptr,
                                  .scratch = Floats(p[11])});
    return Outcome::kOk;
  };
  const auto wanted = [](bool want, Argument argument) { return want ? argument : kScratch; };
  CompiledOp op = OwnOp(OpKind::kBackwardBoth, MakeOwnKernel<12>(Implementation(norm), run),
                        {{Role::kInput, 0},
                         {Role::kOutputGrad, 0},
                         {Role::kParamForm, 0},
                         {Role::kParamForm, 1},
                         {statistics, 0},
                         {statistics, 1},
                         wanted(bits >= 0, {Role::kSaved, bits}),
                         wanted(needs.residual, {Role::kInputGrad, 1, true}),
                         wanted(needs.dx, {Role::kInputGrad, 0, true}),
                         wanted(needs.params, {Role::kParamGrad, 0, true}),
                         wanted(needs.params, {Role::kParamGrad, 1, true}),
                         kScratch},
                        5 + (needs.residual ? 1 : 0));
  if (needs.residual || needs.dx) {
    op.in_place_from = 1;
    op.in_place_to = needs.residual ? 7 : 8;
  }
  return op;
}

}  // namespace

std::shared_ptr<const Kernel> MakeNormScale(int64_t channels, double epsilon) {
  return MakeOwnKernel<3>(kNormScaleName,
                          [channels, epsilon](const Addresses<3>& p, const RunContext&) {
                            NormScale(Floats(p[0]), Floats(p[1]), epsilon, channels, Floats(p[2]));
                            return Outcome::kOk;
                          });
}

LayerPtr BatchNorm(const BatchNormOptions& options) {
  return std::make_shared<BatchNormLayer>(options);
}

}  // namespace parax
