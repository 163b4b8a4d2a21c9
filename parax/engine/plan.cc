#include "parax/engine/plan.h"

#include <fmt/core.h>

#include <algorithm>

#include "parax/base/error.h"
#include "parax/layers/elementwise.h"
#include "parax/layers/reorder.h"

namespace parax {
namespace {

// Compiles a graph's layers in order and emits their ops.
class Builder {
 public:
  Builder(const Graph& graph, const PlanOptions& options, const Plan* like)
      : graph_(graph), like_(like) {
    plan_.options = options;
  }

  Plan Run() {
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
    PlanMemory(plan_, pinned);
    return std::move(plan_);
  }

 private:
  struct Tensor {
    Layout layout;
    int buffer = -1;
    bool needs_grad = false;
    int grad = -1;  // buffer of its gradient, once some consumer made one
  };
  // A compiled layer at work between tensors: a node, a reorder or the loss.
  struct Step {
    int node = -1;
    std::string label;
    CompiledLayer layer;
    std::vector<int> inputs;  // tensors
    int output = -1;          // tensor
    std::vector<int> saved;   // buffers
    int first_param = 0;      // of the node, in Plan::params
    int first_state = 0;
  };

  bool training() const { return plan_.options.mode == Mode::kTraining; }

  void NumberTensors() {
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      const Graph::Node& node = graph_.nodes()[n];
      first_param_.push_back(static_cast<int>(plan_.params.size()));
      first_state_.push_back(static_cast<int>(plan_.states.size()));
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
        plan_.states.push_back({fmt::format("{}.{}", node.name, spec.name), static_cast<int>(n),
                                index++, spec, false});
      }
    }
  }

  int AddBuffer(std::string name, BufferKind kind, size_t bytes) {
    PlanBuffer buffer;
    buffer.name = std::move(name);
    buffer.kind = kind;
    buffer.bytes = bytes;
    plan_.buffers.push_back(std::move(buffer));
    return static_cast<int>(plan_.buffers.size()) - 1;
  }

  int AddTensor(std::string name, BufferKind kind, const Layout& layout) {
    tensors_.push_back({layout, AddBuffer(std::move(name), kind, layout.bytes()), false, -1});
    return static_cast<int>(tensors_.size()) - 1;
  }

  void MakeInputs() {
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

  CompileRequest Request(const std::vector<int>& inputs, const std::string& label, int node) {
    CompileRequest request;
    request.mode = plan_.options.mode;
    for (const int t : inputs) {
      request.inputs.push_back(tensors_[static_cast<size_t>(t)].layout);
      request.need_input_grad.push_back(tensors_[static_cast<size_t>(t)].needs_grad);
    }
    request.blocked = plan_.options.blocked;
    request.threads = plan_.options.threads;
    if (const auto it = plan_.options.implementations.find(label);
        it != plan_.options.implementations.end()) {
      request.implementations = it->second;
    }
    if (node >= 0 && like_ != nullptr) {
      const int first = first_param_[static_cast<size_t>(node)];
      const int count = ParamCount(node);
      for (int p = first; p < first + count; ++p) {
        request.fixed_grads.push_back(like_->params[static_cast<size_t>(p)].grad);
      }
      for (const PlanForm& form : like_->forms) {
        if (form.param >= first && form.param < first + count) {
          request.fixed_forms.push_back({form.param - first, form.layout});
        }
      }
    }
    return request;
  }

  int ParamCount(int node) const {
    const size_t n = static_cast<size_t>(node);
    const size_t end = n + 1 < first_param_.size() ? static_cast<size_t>(first_param_[n + 1])
                                                   : plan_.params.size();
    return static_cast<int>(end) - first_param_[n];
  }

  static std::string Label(const Graph::Node& node, int index) {
    return node.name.empty() ? fmt::format("{}#{}", node.layer->kind(), index) : node.name;
  }

  void CompileNode(int index) {
    const Graph::Node& node = graph_.nodes()[static_cast<size_t>(index)];
    Step step;
    step.node = index;
    step.label = Label(node, index);
    step.first_param = first_param_[static_cast<size_t>(index)];
    step.first_state = first_state_[static_cast<size_t>(index)];
    bool needs_grad = training() && ParamCount(index) > 0 && !node.frozen;
    for (const int value : node.inputs) {
      step.inputs.push_back(value_[static_cast<size_t>(value)]);
      needs_grad |= tensors_[static_cast<size_t>(step.inputs.back())].needs_grad;
    }
    CompileRequest request = Request(step.inputs, step.label, index);
    request.need_param_grad = !node.frozen;
    step.layer = node.layer->Compile(request);
    ConvertInputs(step);
    TakeParams(step, index);
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
    Forward(step);
    steps_.push_back(std::move(step));
  }

  // Where a layer wants an input arranged otherwise than its producer made it: a reorder, shared by
  // all consumers that want the same.
  void ConvertInputs(Step& step) {
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

  int AddReorder(int source, const Layout& wanted) {
    Step step;
    const Tensor from = tensors_[static_cast<size_t>(source)];
    step.label = fmt::format("reorder of {}", plan_.buffers[static_cast<size_t>(from.buffer)].name);
    step.inputs = {source};
    step.layer.output = wanted;
    const auto op = [](std::shared_ptr<const Kernel> kernel, Role in, Role out, OpKind kind) {
      CompiledOp result;
      result.arguments = {{in, 0, false}, {out, 0, true}};
      if (kernel->scratch_bytes() > 0) result.arguments.push_back({Role::kScratch, 0, true});
      result.kernel = std::move(kernel);
      result.kind = kind;
      return result;
    };
    step.layer.forward = {
        op(MakeReorder(from.layout, wanted), Role::kInput, Role::kOutput, OpKind::kForward)};
    if (training() && from.needs_grad) {
      step.layer.backward = {op(MakeReorder(wanted, from.layout), Role::kOutputGrad,
                                Role::kInputGrad, OpKind::kBackwardData)};
    }
    step.output = AddTensor(step.label, BufferKind::kActivation, wanted);
    tensors_.back().needs_grad = from.needs_grad;
    Forward(step);
    steps_.push_back(step);
    return step.output;
  }

  // Notes the layouts of parameters and their packed forms, and the norm's batch statistics.
  void TakeParams(Step& step, int index) {
    const int count = ParamCount(index);
    for (int p = 0; p < count; ++p) {
      PlanParam& param = plan_.params[static_cast<size_t>(step.first_param + p)];
      if (static_cast<size_t>(p) < step.layer.grads.size()) {
        param.grad = step.layer.grads[static_cast<size_t>(p)];
      } else if (like_ != nullptr) {
        param.grad = like_->params[static_cast<size_t>(step.first_param + p)].grad;
      }
    }
    for (const size_t bytes : step.layer.saved) {
      step.saved.push_back(AddBuffer(step.label + " saved", BufferKind::kSaved, bytes));
    }
    if (step.layer.saved_mean >= 0) {
      plan_.moments.push_back({index, step.saved[static_cast<size_t>(step.layer.saved_mean)],
                               step.saved[static_cast<size_t>(step.layer.saved_variance)],
                               tensors_[static_cast<size_t>(step.inputs[0])].layout.dims()[1],
                               step.layer.statistics_count});
      for (PlanState& state : plan_.states) state.moving |= state.node == index;
    }
  }

  void CompileLoss() {
    const int logits_value = graph_.logits();
    Step step;
    step.label = "loss";
    step.inputs = {value_[static_cast<size_t>(logits_value)]};
    const LayerPtr layer = SoftmaxCrossEntropy(plan_.options.loss);
    step.layer = layer->Compile(Request(step.inputs, step.label, -1));
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

  int FormIndex(const Step& step, int form) {
    const ParamFormSpec& spec = step.layer.forms[static_cast<size_t>(form)];
    const int param = step.first_param + spec.param;
    for (size_t i = 0; i < plan_.forms.size(); ++i) {
      if (plan_.forms[i].param == param && plan_.forms[i].layout == spec.layout) {
        return static_cast<int>(i);
      }
    }
    plan_.forms.push_back({param, spec.layout});
    return static_cast<int>(plan_.forms.size()) - 1;
  }

  // Emits the ops of one pass; `input_grads` tells where kInputGrad i goes.
  void Emit(const Step& step, const std::vector<CompiledOp>& ops, const char* pass,
            const std::vector<int>& input_grads) {
    std::vector<int> temps;
    for (const size_t bytes : step.layer.temps) {
      temps.push_back(AddBuffer(step.label + " temporary", BufferKind::kScratch, bytes));
    }
    for (const CompiledOp& compiled : ops) {
      PlanOp op;
      op.name = fmt::format("{} {}", step.label, pass);
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

  PlanArgument Resolve(const Step& step, const Argument& argument, const CompiledOp& op,
                       const std::vector<int>& temps, const std::vector<int>& input_grads) {
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
        return {Place::kGradient, step.first_param + argument.index, argument.write};
      case Role::kState:
        return {Place::kState, step.first_state + argument.index, argument.write};
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

  void Forward(const Step& step) { Emit(step, step.layer.forward, "forward", {}); }

  // Joins a further gradient of a tensor to what it has already.
  void Join(int tensor, int gradient) {
    Tensor& t = tensors_[static_cast<size_t>(tensor)];
    if (t.grad < 0) {
      t.grad = gradient;
      return;
    }
    PlanOp op;
    const std::string& name = plan_.buffers[static_cast<size_t>(t.buffer)].name;
    op.name = fmt::format("{} gradient sum", name);
    op.kind = OpKind::kBackwardData;
    op.kernel = MakeAddInto(t.layout.elements(), plan_.options.threads);
    const int sum = AddBuffer(op.name, BufferKind::kGradient, t.layout.bytes());
    op.arguments = {{Place::kArena, sum, true},
                    {Place::kArena, t.grad, false},
                    {Place::kArena, gradient, false}};
    op.in_place_to = 0;
    op.in_place_from = 1;
    op.bytes = 3.0 * static_cast<double>(t.layout.bytes());
    plan_.ops.push_back(std::move(op));
    t.grad = sum;
  }

  void Backward(const Step& step) {
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

  bool AnyNeedsGrad(const std::vector<int>& inputs) const {
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](int t) { return tensors_[static_cast<size_t>(t)].needs_grad; });
  }

  const Graph& graph_;
  const Plan* like_;
  Plan plan_;
  std::vector<Tensor> tensors_;
  std::vector<int> value_;         // tensor of each graph value
  std::vector<int> node_outputs_;  // tensor of each node's output
  std::vector<Step> steps_;
  std::vector<int> first_param_, first_state_;  // a node
  std::map<int, std::vector<int>> converted_;   // tensor -> its reordered copies
};

}  // namespace

Plan Plan::Build(const Graph& graph, const PlanOptions& options, const Plan* like) {
  if (options.batch < 1)
    FailUsage("a plan needs a batch of at least 1 image, not {}", options.batch);
  return Builder(graph, options, like).Run();
}

}  // namespace parax
