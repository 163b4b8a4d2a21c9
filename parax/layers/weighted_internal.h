#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parax/layers/layers.h"
#include "parax/layers/onednn_internal.h"

// What convolution and linear layers share: three passes around one weight tensor, each of which
// has several candidate primitives with weight layouts of their own.
namespace parax {

// One way to compute a pass. `arguments` in the pass's order:
//   forward           input, weight, [bias], output; with a norm behind it also mean, scale, bias,
//                     residual (where none is added: anything)
//   backward data     output gradient, weight, input gradient
//   backward weights  input, output gradient, weight gradient, [bias gradient]
struct Candidate {
  dnnl::primitive_desc_base pd;
  std::vector<OnednnArgument> arguments;
  dnnl::memory::desc weights;  // the layout read or written, in the layer's logical dimensions
  std::string prefix;          // of the implementation's name
  // A kernel of ours, in place of `pd`; `arguments` then only tell its traffic.
  std::shared_ptr<const Kernel> own = nullptr;
  bool in_place = false;  // the output may lie over the norm's residual
  std::string name() const { return own ? own->implementation() : prefix + pd.impl_info_str(); }
};

// Candidates of one pass for a weight layout: a fixed one, or AnyDesc().
using CandidateMaker = std::function<std::vector<Candidate>(const dnnl::memory::desc& weights)>;

struct WeightedRule {
  std::string what;  // for error messages, "conv 64->128 3x3"
  Dims weight_dims;
  int64_t bias = 0;  // number of bias values; 0: none
  DType dtype = DType::kF32;
  std::optional<BatchNormOptions> norm;  // done by the forward kernels: evaluation
  double flops = 0;                      // of each pass
  std::vector<std::string> preferred;    // the first of these that there is; else oneDNN's first
  dnnl::memory::desc input, output;
  CandidateMaker forward, backward_data, backward_weights;
};

CompiledLayer CompileWeighted(const WeightedRule& rule, const CompileRequest& request);
std::vector<std::string> WeightedCandidates(const WeightedRule& rule, const CompileRequest& request,
                                            int op);

// Weight gradients as a matrix product, for activations whose channels are innermost: output
// gradient [pixels, outputs] and input [pixels, inputs] row-major. Two orientations, as no CPU
// prefers the same one for all shapes: "matmul:..." writes [outputs, inputs], "matmul_t:..." its
// transpose. Appends those whose layout `weights` allows.
void AddMatmulWeightGradients(int64_t pixels, int64_t inputs, int64_t outputs, DType type,
                              const Dims& weight_dims, const dnnl::memory::desc& weights,
                              std::vector<Candidate>& candidates);

// Appends every implementation of `first`, with its weight layout from `weights_of(pd)` and
// arguments from `arguments_of(pd)`; skips those whose weight layout only oneDNN can address.
template <class Pd, class WeightsOf, class ArgumentsOf>
void AddCandidates(const Pd& first, WeightsOf weights_of, ArgumentsOf arguments_of,
                   std::vector<Candidate>& candidates) {
  for (const Pd& pd : AllImplementations(first)) {
    const dnnl::memory::desc weights = weights_of(pd);
    if (IsBlocked(weights)) candidates.push_back({pd, arguments_of(pd), weights, ""});
  }
}

}  // namespace parax
