#include <fmt/core.h>

#include <algorithm>

#include "parax/base/error.h"
#include "parax/engine/plan_builder_internal.h"
#include "parax/layers/reorder.h"

namespace parax {

Plan PlanBuilder::Run() {
  NumberTensors();
  MakeInputs();
  for (size_t n = 0; n < graph_.nodes().size(); ++n) CompileNode(static_cast<int>(n));
  CompileLoss();
  plan_.forward_ops = static_cast<int>(plan_.ops.size());
  if (plan_.options.mode == Mode::kTraining) {
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) Backward(*step);
  }
  for (const int tensor : node_outputs_) {
    plan_.outputs.push_back(tensors_[static_cast<size_t>(tensor)].buffer);
  }
  std::vector<int> pinned = {plan_.labels, plan_.targets,       plan_.loss,
                             plan_.logits, plan_.probabilities, plan_.images};
  PlanMemoryWithDeferral(plan_, pinned);
  return std::move(plan_);
}

void PlanBuilder::NumberTensors() {
  for (size_t n = 0; n < graph_.nodes().size(); ++n) {
    const Graph::Node& node = graph_.nodes()[n];
    int index = 0;
    for (const ParamSpec& spec : node.layer->Params()) {
      plan_.params.push_back({fmt::format("{}.{}", node.name, spec.name),
                              static_cast<int>(n),
                              index++,
                              spec,
                              !node.frozen,
                              {}});
    }
    index = 0;
    for (const StateSpec& spec : node.layer->States()) {
      plan_.states.push_back(
          {fmt::format("{}.{}", node.name, spec.name), static_cast<int>(n), index++, spec, false});
    }
  }
}

int PlanBuilder::AddBuffer(std::string name, BufferKind kind, size_t bytes) {
  PlanBuffer buffer;
  buffer.name = std::move(name);
  buffer.kind = kind;
  buffer.bytes = bytes;
  plan_.buffers.push_back(std::move(buffer));
  return static_cast<int>(plan_.buffers.size()) - 1;
}

int PlanBuilder::AddTensor(std::string name, BufferKind kind, const Layout& layout) {
  tensors_.push_back({layout, AddBuffer(std::move(name), kind, layout.bytes()), false, -1});
  return static_cast<int>(tensors_.size()) - 1;
}

void PlanBuilder::MakeInputs() {
  Dims dims = graph_.dims(0);
  dims[0] = plan_.options.batch;
  plan_.images_layout = Layout::ChannelsLast(dims);
  value_.push_back(AddTensor("images", BufferKind::kInput, plan_.images_layout));
  plan_.images = tensors_[0].buffer;
  const size_t batch = static_cast<size_t>(plan_.options.batch);
  plan_.labels = AddBuffer("labels", BufferKind::kInput, batch * sizeof(int32_t));
  if (plan_.options.loss.probabilities) {
    plan_.targets =
        AddBuffer("targets", BufferKind::kInput,
                  batch * static_cast<size_t>(plan_.options.loss.classes) * sizeof(float));
  }
  plan_.loss = AddBuffer("loss", BufferKind::kInput, sizeof(LossResult));
}

CompileRequest PlanBuilder::Request(const Step& step) {
  CompileRequest request;
  request.mode = plan_.options.mode;
  for (const int t : step.inputs) {
    request.inputs.push_back(tensors_[static_cast<size_t>(t)].layout);
    request.need_input_grad.push_back(tensors_[static_cast<size_t>(t)].needs_grad);
  }
  const auto layout = plan_.options.layouts.find(step.label);
  request.blocked = layout == plan_.options.layouts.end() ? plan_.options.blocked : layout->second;
  request.winograd = plan_.options.winograd;
  request.threads = plan_.options.threads;
  if (const auto it = plan_.options.implementations.find(step.label);
      it != plan_.options.implementations.end()) {
    request.implementations = it->second;
  }
  if (like_ == nullptr) return request;
  for (const int p : step.params) {
    request.fixed_grads.push_back(like_->params[static_cast<size_t>(p)].grad);
  }
  for (const PlanForm& form : like_->forms) {
    const auto own = std::find(step.params.begin(), step.params.end(), form.param);
    if (own == step.params.end()) continue;
    request.fixed_forms.push_back({static_cast<int>(own - step.params.begin()), form.layout});
  }
  return request;
}

void PlanBuilder::AddTensorsOf(int node, Step& step) const {
  for (size_t p = 0; p < plan_.params.size(); ++p)
    if (plan_.params[p].node == node) step.params.push_back(static_cast<int>(p));
  for (size_t s = 0; s < plan_.states.size(); ++s)
    if (plan_.states[s].node == node) step.states.push_back(static_cast<int>(s));
}

int PlanBuilder::NormBehind(int node) const {
  const int value = graph_.nodes()[static_cast<size_t>(node)].output;
  if (training() || value == graph_.logits()) return -1;
  int found = -1, readers = 0;
  for (size_t n = 0; n < graph_.nodes().size(); ++n) {
    const Graph::Node& reader = graph_.nodes()[n];
    readers += static_cast<int>(std::count(reader.inputs.begin(), reader.inputs.end(), value));
    if (reader.layer->norm() != nullptr && reader.inputs[0] == value) found = static_cast<int>(n);
  }
  return readers == 1 ? found : -1;
}

bool PlanBuilder::TakesNormIn(int index) {
  const int norm = NormBehind(index);
  if (norm < 0) return false;
  const std::vector<Graph::Node>& nodes = graph_.nodes();
  LayerPtr both = nodes[static_cast<size_t>(index)].layer->WithNorm(
      *nodes[static_cast<size_t>(norm)].layer->norm());
  if (both == nullptr) return false;
  fused_[norm] = {index, std::move(both)};
  return true;
}

void PlanBuilder::CompileNode(int index) {
  const Graph::Node& node = graph_.nodes()[static_cast<size_t>(index)];
  if (TakesNormIn(index)) {
    value_.push_back(-1);
    node_outputs_.push_back(-1);
    return;
  }
  const auto fused = fused_.find(index);
  const LayerPtr layer = fused == fused_.end() ? node.layer : fused->second.layer;
  Step step;
  step.node = fused == fused_.end() ? index : fused->second.node;
  step.label = graph_.label(step.node);
  step.kind = layer->kind();
  AddTensorsOf(step.node, step);
  std::vector<int> inputs = node.inputs;
  if (step.node != index) {
    AddTensorsOf(index, step);
    const std::vector<int>& first = graph_.nodes()[static_cast<size_t>(step.node)].inputs;
    inputs.erase(inputs.begin());
    inputs.insert(inputs.begin(), first.begin(), first.end());
  }
  bool needs_grad = training() && !step.params.empty() && !node.frozen;
  for (const int value : inputs) {
    step.inputs.push_back(value_[static_cast<size_t>(value)]);
    needs_grad |= tensors_[static_cast<size_t>(step.inputs.back())].needs_grad;
  }
  CompileRequest request = Request(step);
  request.need_param_grad = !node.frozen;
  step.layer = layer->Compile(request);
  ConvertInputs(step);
  TakeParams(step);
  if (step.layer.output_is_input) {
    const Tensor input = tensors_[static_cast<size_t>(step.inputs[0])];
    step.output = AddTensor(step.label, BufferKind::kActivation, step.layer.output);
    PlanBuffer& view = plan_.buffers[static_cast<size_t>(tensors_.back().buffer)];
    view.shares = input.buffer;
  } else {
    step.output = AddTensor(step.label, BufferKind::kActivation, step.layer.output);
  }
  tensors_.back().needs_grad = needs_grad;
  value_.push_back(step.output);
  node_outputs_.push_back(step.output);
  node_outputs_[static_cast<size_t>(step.node)] = step.output;
  Forward(step);
  steps_.push_back(std::move(step));
}

void PlanBuilder::ConvertInputs(Step& step) {
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    const int source = step.inputs[i];
    const Layout wanted = step.layer.inputs.empty() ? tensors_[static_cast<size_t>(source)].layout
                                                    : step.layer.inputs[i];
    if (wanted == tensors_[static_cast<size_t>(source)].layout) continue;
    auto& made = converted_[source];
    const auto known = std::find_if(made.begin(), made.end(), [&](int t) {
      return tensors_[static_cast<size_t>(t)].layout == wanted;
    });
    if (known == made.end()) {
      made.push_back(AddReorder(source, wanted));
      step.inputs[i] = made.back();
    } else {
      step.inputs[i] = *known;
    }
  }
}

int PlanBuilder::AddReorder(int source, const Layout& wanted) {
  Step step;
  const Tensor from = tensors_[static_cast<size_t>(source)];
  step.label = fmt::format("reorder of {}", plan_.buffers[static_cast<size_t>(from.buffer)].name);
  step.kind = "reorder";
  step.inputs = {source};
  step.layer.output = wanted;
  const auto op = [&](std::shared_ptr<const Kernel> kernel, Role in, Role out, OpKind kind) {
    CompiledOp result;
    result.arguments = {{in, 0, false}, {out, 0, true}};
    if (kernel->scratch_bytes() > 0) result.arguments.push_back({Role::kScratch, 0, true});
    result.kernel = std::move(kernel);
    result.kind = kind;
    result.bytes = static_cast<double>(from.layout.bytes() + wanted.bytes());
    return result;
  };
  step.layer.forward = {
      op(MakeReorder(from.layout, wanted), Role::kInput, Role::kOutput, OpKind::kForward)};
  if (training() && from.needs_grad) {
    step.layer.backward = {op(MakeReorder(wanted, from.layout), Role::kOutputGrad, Role::kInputGrad,
                              OpKind::kBackwardData)};
  }
  step.output = AddTensor(step.label, BufferKind::kActivation, wanted);
  tensors_.back().needs_grad = from.needs_grad;
  Forward(step);
  steps_.push_back(step);
  return step.output;
}

void PlanBuilder::TakeParams(Step& step) {
  for (size_t i = 0; i < step.params.size(); ++i) {
    const size_t p = static_cast<size_t>(step.params[i]);
    if (i < step.layer.grads.size()) {
      plan_.params[p].grad = step.layer.grads[i];
    } else if (like_ != nullptr) {
      plan_.params[p].grad = like_->params[p].grad;
    }
  }
  for (const size_t bytes : step.layer.saved) {
    step.saved.push_back(AddBuffer(step.label + " saved", BufferKind::kSaved, bytes));
  }
  if (step.layer.saved_mean >= 0) {
    plan_.moments.push_back({step.node, step.saved[static_cast<size_t>(step.layer.saved_mean)],
                             step.saved[static_cast<size_t>(step.layer.saved_variance)],
                             tensors_[static_cast<size_t>(step.inputs[0])].layout.dims()[1],
                             step.layer.statistics_count});
    for (PlanState& state : plan_.states) state.moving |= state.node == step.node;
  }
}

void PlanBuilder::CompileLoss() {
  const int logits_value = graph_.logits();
  Step step;
  step.label = step.kind = "loss";
  step.inputs = {value_[static_cast<size_t>(logits_value)]};
  const LayerPtr layer = SoftmaxCrossEntropy(plan_.options.loss);
  step.layer = layer->Compile(Request(step));
  plan_.logits = tensors_[static_cast<size_t>(step.inputs[0])].buffer;
  plan_.logits_layout = tensors_[static_cast<size_t>(step.inputs[0])].layout;
  ConvertInputs(step);
  for (const size_t bytes : step.layer.saved) {
    step.saved.push_back(AddBuffer("loss saved", BufferKind::kSaved, bytes));
  }
  step.output = AddTensor("probabilities", BufferKind::kActivation, step.layer.output);
  plan_.probabilities = tensors_.back().buffer;
  Forward(step);
  steps_.push_back(std::move(step));
}

Plan Plan::Build(const Graph& graph, const PlanOptions& options, const Plan* like) {
  if (options.batch < 1)
    FailUsage("a plan needs a batch of at least 1 image, not {}", options.batch);
  return PlanBuilder(graph, options, like).Run();
}

}  // namespace parax
