#pragma once

#include <map>
#include <string>
#include <vector>

#include "parax/engine/plan.h"

namespace parax {

// Compiles a graph's layers in order (plan.cc) and emits their ops (plan_emit.cc).
class PlanBuilder {
 public:
  PlanBuilder(const Graph& graph, const PlanOptions& options, const Plan* like)
      : graph_(graph), like_(like) {
    plan_.options = options;
  }

  Plan Run();

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
    std::string label, kind;
    CompiledLayer layer;
    std::vector<int> inputs;          // tensors
    int output = -1;                  // tensor
    std::vector<int> saved;           // buffers
    std::vector<int> params, states;  // the layer's, in Plan::params and states
  };

  bool training() const { return plan_.options.mode == Mode::kTraining; }
  void NumberTensors();

  int AddBuffer(std::string name, BufferKind kind, size_t bytes);
  int AddTensor(std::string name, BufferKind kind, const Layout& layout);

  void MakeInputs();
  CompileRequest Request(const Step& step);

  // Appends a node's parameters and states to the step's.
  void AddTensorsOf(int node, Step& step) const;
  // The batch norm that alone reads a node's output, in evaluation; -1: none.
  int NormBehind(int node) const;
  // Whether the node's layer does that norm too: both are compiled in the norm's place, where the
  // norm's other input is there.
  bool TakesNormIn(int node);
  void CompileNode(int index);

  // Where a layer wants an input arranged otherwise than its producer made it: a reorder, shared by
  // all consumers that want the same.
  void ConvertInputs(Step& step);

  int AddReorder(int source, const Layout& wanted);

  // Notes the layouts of parameters and the norm's batch statistics.
  void TakeParams(Step& step);
  void CompileLoss();

  int FormIndex(const Step& step, int form);

  // Emits the ops of one pass; `input_grads` tells where kInputGrad i goes.
  void Emit(const Step& step, const std::vector<CompiledOp>& ops, const char* pass,
            const std::vector<int>& input_grads);
  PlanArgument Resolve(const Step& step, const Argument& argument, const CompiledOp& op,
                       const std::vector<int>& temps, const std::vector<int>& input_grads);

  void Forward(const Step& step) { Emit(step, step.layer.forward, "forward", {}); }

  // Joins a further gradient of a tensor to what it has already.
  void Join(int tensor, int gradient);
  void Backward(const Step& step);

  bool AnyNeedsGrad(const std::vector<int>& inputs) const;

  const Graph& graph_;
  const Plan* like_;
  Plan plan_;
  std::vector<Tensor> tensors_;
  std::vector<int> value_;         // tensor of each graph value
  std::vector<int> node_outputs_;  // tensor of each node's output
  std::vector<Step> steps_;
  struct Fused {
    int node;  // that takes the norm in
    LayerPtr layer;
  };
  std::map<int, Fused> fused_;                 // by batch norm
  std::map<int, std::vector<int>> converted_;  // tensor -> its reordered copies
};

}  // namespace parax
