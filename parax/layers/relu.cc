#include "parax/layers/elementwise.h"
#include "parax/layers/layers.h"
#include "parax/layers/own_kernel.h"

namespace parax {
namespace {

class ReluLayer final : public Layer {
 public:
  std::string kind() const override { return "relu"; }

  Dims OutputDims(const std::vector<Dims>& inputs) const override {
    RequireInputs(*this, inputs, 1);
    return inputs[0];
  }

  CompiledLayer Compile(const CompileRequest& request) const override {
    const Layout& layout = request.inputs.at(0);
    const Elements elements = {layout.elements(), RequireReal(*this, {layout})};
    const auto bytes = static_cast<double>(layout.bytes());

    CompiledLayer compiled;
    compiled.inputs = {layout};
    compiled.output = layout;
    CompiledOp forward = OwnOp(OpKind::kForward, MakeRelu(elements, request.threads),
                               {{Role::kOutput, 0, true}, {Role::kInput, 0}}, 2 * bytes);
    forward.in_place_from = 1;
    forward.in_place_to = 0;
    compiled.forward = {std::move(forward)};
    // From the output, so the input need not be kept and forward may run in place.
    if (request.mode == Mode::kTraining && request.need_input_grad.at(0)) {
      CompiledOp backward = OwnOp(
          OpKind::kBackwardData, MakeReluBackward(elements, request.threads),
          {{Role::kInputGrad, 0, true}, {Role::kOutput, 0}, {Role::kOutputGrad, 0}}, 3 * bytes);
      backward.in_place_from = 2;
      backward.in_place_to = 0;
      compiled.backward = {std::move(backward)};
    }
    RequireImplementations(*this, request, compiled);
    return compiled;
  }
};

}  // namespace

LayerPtr Relu() { return std::make_shared<ReluLayer>(); }

}  // namespace parax
