#pragma once

#include <optional>
#include <vector>

#include "parax/layers/gemm_internal.h"
#include "parax/layers/layers.h"
#include "parax/layers/weighted_internal.h"
#include "parax/layers/winograd_internal.h"

namespace parax {

// One convolution at one batch size: what all its primitive descriptors have in common.
struct ConvProblem {
  ConvOptions options;
  int threads;
  Dims stride, dilation, padding;
  dnnl::memory::desc bias;  // empty: none
  dnnl::memory::desc x, y;
  std::optional<BatchNormOptions> norm;
  bool pack = false;  // the weights may have a form of forward's own

  dnnl::convolution_forward::primitive_desc MakeForward(const dnnl::memory::desc& source,
                                                        const dnnl::memory::desc& weights,
                                                        const dnnl::memory::desc& target) const;

  // Candidates of each pass for a layout of the weights, fixed or any. `hint`: a forward primitive.
  std::vector<Candidate> ForwardCandidates(const dnnl::memory::desc& weights) const;
  std::vector<Candidate> DataCandidates(
      const dnnl::memory::desc& weights,
      const dnnl::convolution_forward::primitive_desc& hint) const;
  std::vector<Candidate> WeightsCandidates(
      const dnnl::memory::desc& weights, const Dims& weight_dims, DType type,
      const dnnl::convolution_forward::primitive_desc& hint) const;

 private:
  // The norm as our kernels take it, and as operations behind a primitive with their arguments.
  std::optional<FinishOptions> Finishing() const;
  dnnl::primitive_attr Attributes() const;
  void AddNormArguments(std::vector<OnednnArgument>& arguments) const;
  dnnl::memory::desc NormRow() const;

  // Ours for 3x3 with stride 1, where x and y are panels of whole vectors.
  std::optional<WinogradConv> Winograd() const;
  // Ours for channels last and whole vectors.
  std::optional<GemmConv> Gemm() const;
  // The weights as our kernels read and write them: [kernel][kernel][in][out] in every pass, which
  // spares the optimizer further packed forms.
  dnnl::memory::desc OwnWeights() const;
  // The weights as MakeGemmForward wants packed ones.
  dnnl::memory::desc PackedWeights() const;
};

}  // namespace parax
