#pragma once

#include <map>
#include <string>
#include <vector>

#include "parax/engine/layout_search.h"
#include "parax/engine/op_timer.h"
#include "parax/engine/tune.h"
#include "parax/engine/tune_steps_internal.h"

namespace parax {

// Measures the layers of a graph in the layouts in which the search meets them.
class LayerTuner {
 public:
  LayerTuner(const Graph& graph, const TrainerOptions& options, const TuneOptions& tune,
             TuneCache& cache);

  // The best combination of all layers, by the times of single ops.
  TunedPlan Search();
  // What may be faster than the kernels of `plan`, in its layouts: a node each.
  std::vector<ContendingLayer> Contenders(const TunedPlan& plan);

 private:
  // A layer in one way, with the implementations chosen for it.
  struct Variant {
    LayoutWay way;
    bool blocked = false;
    std::vector<std::string> implementations;
    ContendingLayer layer;  // the layer's own choice first
  };
  struct Candidate {
    std::string name;
    CompiledOp op;
    std::vector<TimedOp::Argument> arguments;
    Layout form;  // packed weights it reads; empty: none
    double seconds = 0;
  };

  CompileRequest Request(int node, std::span<const int> made, bool blocked) const;
  const std::vector<Variant>& Variants(int node, std::span<const int> made);
  std::vector<Contender> Near(const std::vector<Candidate>& candidates, size_t best);
  Variant Measure(int node, const CompileRequest& request, const CompiledLayer& layer);
  // Of each op; the layer's own choice first.
  std::vector<std::vector<Candidate>> Candidates(int node, const CompileRequest& request,
                                                 const CompiledLayer& layer);
  void Time(int node, const CompiledLayer& layer, std::vector<Candidate>& candidates);
  double ReorderSeconds(const Layout& from, const Layout& to);
  double FormSeconds(const Layout& form);  // of an optimizer that writes it
  int Number(const Layout& layout);
  int InputLayout();  // number of the network's input's
  // Runs on a seat: oneDNN kernels must be made under the thread count they run with.
  template <typename Work>
  void OnSeat(Work work) {
    workers_.Run([&](int leaf) {
      if (leaf == 0) work();
    });
  }

  const Graph& graph_;
  const TrainerOptions& options_;
  const TuneOptions& tune_;
  TuneCache& cache_;
  Workers workers_;
  OpTimer timer_;
  const std::string machine_;  // TuneKey
  std::vector<Layout> layouts_;
  std::vector<bool> needs_grad_;                       // by value
  std::map<std::string, Variant> measured_;            // by layer and the layouts it works in
  std::map<std::string, std::vector<Variant>> known_;  // by layer and layouts
};

// What a node's kernels depend on, but for batch, layouts and threads: layers alike in this share
// measurements.
std::string LayerKey(const Graph& graph, const Graph::Node& node);

// The machine as far as times depend on it, with seats and threads.
std::string TuneKey(const TrainerOptions& options);

}  // namespace parax
