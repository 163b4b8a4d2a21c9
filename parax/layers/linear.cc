#include "parax/layers/layers.h"
#include "parax/layers/weighted_internal.h"

namespace parax {
namespace {

using dnnl::memory;
using Forward = dnnl::inner_product_forward::primitive_desc;
using BackwardData = dnnl::inner_product_backward_data::primitive_desc;
using BackwardWeights = dnnl::inner_product_backward_weights::primitive_desc;

class LinearLayer final : public Layer {
 public:
  LinearLayer(int64_t in, int64_t out, bool bias) : in_(in), out_(out), bias_(bias) {
    if (in < 1 || out < 1) Fail("{}: sizes must be positive", Describe());
  }

  std::string kind() const override { return "linear"; }

  Dims OutputDims(const std::vector<Dims>& inputs) const override {
    if (inputs.size() != 1 || inputs[0].size() != 2 || inputs[0][1] != in_)
      Fail("{}: wants one input of N x {}", Describe(), in_);
    return {inputs[0][0], out_};
  }

  std::vector<ParamSpec> Params() const override {
    std::vector<ParamSpec> params = {{"weight", {out_, in_}, InitRule::kUniformFanIn, true}};
    if (bias_) params.push_back({"bias", {out_}, InitRule::kUniformFanIn, false});
    return params;
  }

  CompiledLayer Compile(const CompileRequest& request) const override {
    return CompileWeighted(Rule(request), request);
  }

  std::vector<std::string> Candidates(const CompileRequest& request, int op) const override {
    return WeightedCandidates(Rule(request), request, op);
  }

 private:
  std::string Describe() const { return fmt::format("linear {}->{}", in_, out_); }

  WeightedRule Rule(const CompileRequest& request) const {
    const DType type = request.inputs.at(0).dtype();
    if (request.emulate && type == DType::kBF16)
      return EmulateBf16(Rule(FloatRequest(request)), request.threads);
    const Dims in = request.inputs[0].dims(), out = OutputDims({in});
    WeightedRule rule;
    rule.what = Describe();
    rule.weight_dims = {out_, in_};
    rule.bias = bias_ ? out_ : 0;
    rule.dtype = type;
    rule.flops = 2.0 * static_cast<double>(in[0] * in_ * out_);
    rule.input = DescOf(Layout::Plain(in, type));
    rule.output = DescOf(Layout::Plain(out, type));
    const memory::desc x = rule.input, y = rule.output;
    const memory::desc bias = DescOf(Layout::Plain({out_}));
    const dnnl::prop_kind kind = request.mode == Mode::kTraining
                                     ? dnnl::prop_kind::forward_training
                                     : dnnl::prop_kind::forward_inference;
    rule.forward = [=, this](const memory::desc& weights) {
      return ForwardCandidates(kind, x, weights, bias, y);
    };
    const Forward hint(OnednnEngine(), dnnl::prop_kind::forward_training, x,
                       AnyDesc({out_, in_}, type), y, UserScratchpad());
    rule.backward_data = [=](const memory::desc& weights) {
      return DataCandidates(x, weights, y, hint);
    };
    rule.backward_weights = [=, this](const memory::desc& weights) {
      std::vector<Candidate> all = WeightsCandidates(x, weights, bias, y, hint);
      if (!bias_) AddMatmulWeightGradients(in[0], in_, out_, type, {out_, in_}, weights, all);
      return all;
    };
    return rule;
  }

  std::vector<Candidate> ForwardCandidates(dnnl::prop_kind kind, const memory::desc& x,
                                           const memory::desc& weights, const memory::desc& bias,
                                           const memory::desc& y) const {
    std::vector<Candidate> all;
    AddCandidates(
        bias_ ? Forward(OnednnEngine(), kind, x, weights, bias, y, UserScratchpad(), true)
              : Forward(OnednnEngine(), kind, x, weights, y, UserScratchpad(), true),
        [](const Forward& pd) { return pd.weights_desc(); },
        [&](const Forward& pd) {
          std::vector<OnednnArgument> arguments = {{DNNL_ARG_SRC, x},
                                                   {DNNL_ARG_WEIGHTS, pd.weights_desc()}};
          if (bias_) arguments.push_back({DNNL_ARG_BIAS, bias});
          arguments.push_back({DNNL_ARG_DST, y});
          return arguments;
        },
        all);
    return all;
  }

  static std::vector<Candidate> DataCandidates(const memory::desc& x, const memory::desc& weights,
                                               const memory::desc& y, const Forward& hint) {
    std::vector<Candidate> all;
    AddCandidates(
        BackwardData(OnednnEngine(), x, weights, y, hint, UserScratchpad(), true),
        [](const BackwardData& pd) { return pd.weights_desc(); },
        [&](const BackwardData& pd) {
          return std::vector<OnednnArgument>{{DNNL_ARG_DIFF_DST, y},
                                             {DNNL_ARG_WEIGHTS, pd.weights_desc()},
                                             {DNNL_ARG_DIFF_SRC, x}};
        },
        all);
    return all;
  }

  std::vector<Candidate> WeightsCandidates(const memory::desc& x, const memory::desc& weights,
                                           const memory::desc& bias, const memory::desc& y,
                                           const Forward& hint) const {
    std::vector<Candidate> all;
    AddCandidates(
        bias_ ? BackwardWeights(OnednnEngine(), x, weights, bias, y, hint, UserScratchpad(), true)
              : BackwardWeights(OnednnEngine(), x, weights, y, hint, UserScratchpad(), true),
        [](const BackwardWeights& pd) { return pd.diff_weights_desc(); },
        [&](const BackwardWeights& pd) {
          std::vector<OnednnArgument> arguments = {{DNNL_ARG_SRC, x},
                                                   {DNNL_ARG_DIFF_DST, y},
                                                   {DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc()}};
          if (bias_) arguments.push_back({DNNL_ARG_DIFF_BIAS, bias});
          return arguments;
        },
        all);
    return all;
  }

  int64_t in_, out_;
  bool bias_;
};

}  // namespace

LayerPtr Linear(int64_t in, int64_t out, bool bias) {
  return std::make_shared<LinearLayer>(in, out, bias);
}

}  // namespace parax
