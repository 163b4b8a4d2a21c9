#include <algorithm>

#include "parax/layers/elementwise.h"
#include "parax/layers/layers.h"
#include "parax/layers/own_kernel.h"

namespace parax {
namespace {

class AddLayer final : public Layer {
 public:
  explicit AddLayer(bool relu) : relu_(relu) {}

  std::string kind() const override { return relu_ ? "add_relu" : "add"; }

  Dims OutputDims(const std::vector<Dims>& inputs) const override {
    RequireInputs(*this, inputs, 2);
    if (inputs[0] != inputs[1])
      Fail("layer {}: inputs differ in size: {} and {}", kind(),
           Layout::Plain(inputs[0]).ToString(), Layout::Plain(inputs[1]).ToString());
    return inputs[0];
  }

  CompiledLayer Compile(const CompileRequest& request) const override {
    const Layout& layout = request.inputs.at(0);  // the other input is reordered if it differs
    const Elements elements = {layout.elements(), RequireReal(*this, {layout})};
    const auto bytes = static_cast<double>(layout.bytes());

    CompiledLayer compiled;
    compiled.inputs = {layout, layout};
    compiled.output = layout;
    CompiledOp forward = OwnOp(
        OpKind::kForward,
        relu_ ? MakeAddRelu(elements, request.threads) : MakeAddInto(elements, request.threads),
        {{Role::kOutput, 0, true}, {Role::kInput, 0}, {Role::kInput, 1}}, 3 * bytes);
    forward.in_place_from = 1;
    forward.in_place_to = 0;
    compiled.forward = {std::move(forward)};

    const auto& need = request.need_input_grad;
    const auto first = std::find(need.begin(), need.end(), true);
    if (request.mode == Mode::kTraining && first != need.end()) {
      compiled.grads_alias_output_grad = !relu_;
      compiled.input_grads_equal = relu_;
    }
    if (compiled.input_grads_equal) {
      const int input = static_cast<int>(first - need.begin());
      CompiledOp backward = OwnOp(
          OpKind::kBackwardData, MakeReluBackward(elements, request.threads),
          {{Role::kInputGrad, input, true}, {Role::kOutput, 0}, {Role::kOutputGrad, 0}}, 3 * bytes);
      backward.in_place_from = 2;
      backward.in_place_to = 0;
      compiled.backward = {std::move(backward)};
    }
    RequireImplementations(*this, request, compiled);
    return compiled;
  }

 private:
  bool relu_;
};

}  // namespace

LayerPtr Add(bool relu) { return std::make_shared<AddLayer>(relu); }

}  // namespace parax
