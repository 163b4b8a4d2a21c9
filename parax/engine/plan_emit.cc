#include <fmt/core.h>

#include <algorithm>

#include "parax/base/error.h"
#include "parax/engine/plan_builder_internal.h"
#include "parax/layers/elementwise.h"

namespace parax {

int PlanBuilder::FormIndex(const Step& step, int form) {
  const ParamFormSpec& spec = step.layer.forms[static_cast<size_t>(form)];
  const int param = step.params[static_cast<size_t>(spec.param)];
  for (size_t i = 0; i < plan_.forms.size(); ++i) {
    if (plan_.forms[i].param == param && plan_.forms[i].layout == spec.layout) {
      return static_cast<int>(i);
    }
  }
  plan_.forms.push_back({param, spec.layout});
  return static_cast<int>(plan_.forms.size()) - 1;
}

void PlanBuilder::Emit(const Step& step, const std::vector<CompiledOp>& ops, const char* pass,
                       const std::vector<int>& input_grads) {
  std::vector<int> temps;
  for (const size_t bytes : step.layer.temps) {
    temps.push_back(AddBuffer(step.label + " temporary", BufferKind::kScratch, bytes));
  }
  for (const CompiledOp& compiled : ops) {
    PlanOp op;
    op.name = fmt::format("{} {}", step.label, pass);
    op.layer = step.kind;
    op.node = step.node;
    op.kind = compiled.kind;
    op.kernel = compiled.kernel;
    op.flops = compiled.flops;
    op.bytes = compiled.bytes;
    op.in_place_from = compiled.in_place_from;
    op.in_place_to = compiled.in_place_to;
    for (const Argument& argument : compiled.arguments) {
      op.arguments.push_back(Resolve(step, argument, compiled, temps, input_grads));
    }
    plan_.implementations[step.label].push_back(op.kernel->implementation());
    plan_.ops.push_back(std::move(op));
  }
}

PlanArgument PlanBuilder::Resolve(const Step& step, const Argument& argument, const CompiledOp& op,
                                  const std::vector<int>& temps,
                                  const std::vector<int>& input_grads) {
  const size_t i = static_cast<size_t>(argument.index);
  const auto arena = [&](int buffer) {
    return PlanArgument{Place::kArena, buffer, argument.write};
  };
  switch (argument.role) {
    case Role::kInput:
      return arena(tensors_[static_cast<size_t>(step.inputs[i])].buffer);
    case Role::kOutput:
      return arena(tensors_[static_cast<size_t>(step.output)].buffer);
    case Role::kOutputGrad:
      return arena(tensors_[static_cast<size_t>(step.output)].grad);
    case Role::kInputGrad:
      return arena(input_grads[i]);
    case Role::kParamForm:
      return {Place::kForm, FormIndex(step, argument.index), argument.write};
    case Role::kParamGrad:
      return {Place::kGradient, step.params[i], argument.write};
    case Role::kState:
      return {Place::kState, step.states[i], argument.write};
    case Role::kSaved:
      return arena(step.saved[i]);
    case Role::kTemp:
      return arena(temps[i]);
    case Role::kScratch:
      return arena(
          AddBuffer(step.label + " scratch", BufferKind::kScratch, op.kernel->scratch_bytes()));
    case Role::kLabels:
      return arena(plan_.labels);
    case Role::kTargets:
      return arena(plan_.targets);
    case Role::kLoss:
      return arena(plan_.loss);
  }
  Fail("layer {} names an argument of unknown role", step.label);
}

void PlanBuilder::Join(int tensor, int gradient) {
  Tensor& t = tensors_[static_cast<size_t>(tensor)];
  if (t.grad < 0) {
    t.grad = gradient;
    return;
  }
  PlanOp op;
  const std::string& name = plan_.buffers[static_cast<size_t>(t.buffer)].name;
  op.name = fmt::format("{} gradient sum", name);
  op.layer = "gradient sum";
  op.kind = OpKind::kBackwardData;
  op.kernel = MakeAddInto(t.layout.elements(), plan_.options.threads);
  const int sum = AddBuffer(op.name, BufferKind::kGradient, t.layout.bytes());
  op.arguments = {
      {Place::kArena, sum, true}, {Place::kArena, t.grad, false}, {Place::kArena, gradient, false}};
  op.in_place_to = 0;
  op.in_place_from = 1;
  op.bytes = 3.0 * static_cast<double>(t.layout.bytes());
  plan_.ops.push_back(std::move(op));
  t.grad = sum;
}

void PlanBuilder::Backward(const Step& step) {
  const Tensor output = tensors_[static_cast<size_t>(step.output)];
  const bool is_loss = step.label == "loss";
  if (!is_loss && (!output.needs_grad || output.grad < 0)) return;
  if (step.layer.output_is_input || step.layer.grads_alias_output_grad) {
    for (const int input : step.inputs) {
      if (tensors_[static_cast<size_t>(input)].needs_grad) Join(input, output.grad);
    }
    return;
  }
  std::vector<int> grads(step.inputs.size(), -1);
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    if (step.layer.input_grads_equal && i > 0) {
      grads[i] = grads[0];
      continue;
    }
    const Tensor& input = tensors_[static_cast<size_t>(step.inputs[i])];
    const bool shared = step.layer.input_grads_equal && AnyNeedsGrad(step.inputs);
    if (input.needs_grad || shared) {
      grads[i] =
          AddBuffer(step.label + " input gradient", BufferKind::kGradient, input.layout.bytes());
    }
  }
  Emit(step, step.layer.backward, "backward", grads);
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    if (tensors_[static_cast<size_t>(step.inputs[i])].needs_grad) Join(step.inputs[i], grads[i]);
  }
}

bool PlanBuilder::AnyNeedsGrad(const std::vector<int>& inputs) const {
  return std::any_of(inputs.begin(), inputs.end(),
                     [&](int t) { return tensors_[static_cast<size_t>(t)].needs_grad; });
}

}  // namespace parax
