#include <algorithm>
#include <optional>

#include "parax/layers/conv_internal.h"

namespace parax {
namespace {

using dnnl::memory;
using Forward = dnnl::convolution_forward::primitive_desc;
constexpr int64_t kLeastWinogradTiles = 32;

class ConvLayer final : public Layer {
 public:
  explicit ConvLayer(const ConvOptions& options) : o_(options) {
    if (o_.in_channels < 1 || o_.out_channels < 1 || o_.kernel < 1 || o_.stride < 1 ||
        o_.padding < 0 || o_.dilation < 1 || o_.groups < 1 || o_.in_channels % o_.groups != 0 ||
        o_.out_channels % o_.groups != 0)
      Fail("{}: sizes must be positive and the groups divide the channels", Describe());
  }

  std::string kind() const override { return "conv"; }
  std::string Signature() const override {
    return fmt::format("conv stride {} padding {} dilation {} groups {}", o_.stride, o_.padding,
                       o_.dilation, o_.groups);
  }

  Dims OutputDims(const std::vector<Dims>& inputs) const override {
    if (inputs.size() != (norm_ && norm_->add ? 2 : 1) || inputs[0].size() != 4 ||
        inputs[0][1] != o_.in_channels)
      Fail("{}: wants one input of N x {} x H x W", Describe(), o_.in_channels);
    Dims out = {inputs[0][0], o_.out_channels};
    for (const size_t d : {2, 3}) {
      const int64_t room = inputs[0][d] + 2 * o_.padding - o_.dilation * (o_.kernel - 1) - 1;
      if (room < 0) Fail("{}: its kernel is larger than the padded input", Describe());
      out.push_back(room / o_.stride + 1);
    }
    return out;
  }

  std::vector<ParamSpec> Params() const override {
    std::vector<ParamSpec> params = {
        {"weight",
         {o_.out_channels, o_.in_channels / o_.groups, o_.kernel, o_.kernel},
         InitRule::kKaimingNormalFanOut,
         true}};
    if (o_.bias) params.push_back({"bias", {o_.out_channels}, InitRule::kZeros, false});
    if (norm_)
      for (const ParamSpec& param : BatchNorm(*norm_)->Params()) params.push_back(param);
    return params;
  }

  std::vector<StateSpec> States() const override {
    if (!norm_) return {};
    return BatchNorm(*norm_)->States();
  }

  std::shared_ptr<const Layer> WithNorm(const BatchNormOptions& norm) const override {
    auto both = std::make_shared<ConvLayer>(o_);
    both->norm_ = norm;
    return both;
  }

  CompiledLayer Compile(const CompileRequest& request) const override {
    if (norm_ && request.mode == Mode::kTraining)
      Fail("{}: with a norm only in evaluation", Describe());
    return CompileWeighted(Rule(request), request);
  }

  std::vector<std::string> Candidates(const CompileRequest& request, int op) const override {
    return WeightedCandidates(Rule(request), request, op);
  }

 private:
  std::string Describe() const {
    return fmt::format("conv {}->{} {}x{}/{}", o_.in_channels, o_.out_channels, o_.kernel,
                       o_.kernel, o_.stride);
  }

  // G, O/G, I/G, H, W with groups: the canonical order of elements is the same.
  Dims WeightDims() const {
    Dims dims = {o_.out_channels, o_.in_channels / o_.groups, o_.kernel, o_.kernel};
    if (o_.groups > 1) {
      dims[0] /= o_.groups;
      dims.insert(dims.begin(), o_.groups);
    }
    return dims;
  }

  WeightedRule Rule(const CompileRequest& request) const {
    const Layout& given = request.inputs.at(0);
    std::vector<Dims> inputs;
    for (const Layout& input : request.inputs) inputs.push_back(input.dims());
    const Dims in = inputs[0], out = OutputDims(inputs);
    const DType type = given.dtype();
    ConvProblem problem;
    problem.options = o_;
    problem.threads = request.threads;
    problem.norm = norm_;
    problem.pack = request.mode == Mode::kEvaluation && request.fixed_forms.empty();
    problem.stride = {o_.stride, o_.stride};
    problem.dilation = {o_.dilation - 1, o_.dilation - 1};
    problem.padding = {o_.padding, o_.padding};
    if (o_.bias) problem.bias = DescOf(Layout::Plain({o_.out_channels}, type));
    const Dims weight_dims = WeightDims();
    const memory::desc any = AnyDesc(weight_dims, type);
    problem.x = DescOf(Layout::ChannelsLast(in, type));
    problem.y = DescOf(Layout::ChannelsLast(out, type));
    if (request.blocked) problem = Blocked(problem, given, request, weight_dims);
    const Forward hint = problem.MakeForward(problem.x, any, problem.y);

    WeightedRule rule;
    rule.what = Describe();
    rule.weight_dims = weight_dims;
    rule.bias = o_.bias ? o_.out_channels : 0;
    rule.dtype = type;
    rule.norm = norm_;
    rule.flops = 2.0 * static_cast<double>(Product(out)) *
                 static_cast<double>(o_.in_channels / o_.groups * o_.kernel * o_.kernel);
    // Transforming the weights is a fixed cost, paid back by the tiles (docs/design/layers.md); an
    // earlier plan has decided by its packed forms.
    const int64_t tiles = out[0] * ((out[2] + 3) / 4) * ((out[3] + 3) / 4);
    if (request.winograd && (tiles >= kLeastWinogradTiles || !request.fixed_forms.empty()))
      rule.preferred.push_back(kWinogradName);
    rule.preferred.push_back(kGemmName);
    rule.input = problem.x;
    rule.output = problem.y;
    rule.forward = [=](const memory::desc& weights) { return problem.ForwardCandidates(weights); };
    rule.backward_data = [=](const memory::desc& weights) {
      return problem.DataCandidates(weights, hint);
    };
    rule.backward_weights = [=](const memory::desc& weights) {
      return problem.WeightsCandidates(weights, weight_dims, type, hint);
    };
    return rule;
  }

  // The layouts that oneDNN likes best (a blocked input stays as it is), unless they leave only a
  // reference implementation for a pass: then channels last after all.
  static ConvProblem Blocked(const ConvProblem& channels_last, const Layout& given,
                             const CompileRequest& request, const Dims& weight_dims) {
    const DType type = given.dtype();
    const memory::desc any = AnyDesc(weight_dims, type);
    const bool keep = !DescOf(given).get_inner_blks().empty();
    const Forward best =
        channels_last.MakeForward(keep ? DescOf(given) : AnyDesc(given.dims(), type), any,
                                  AnyDesc(channels_last.y.get_dims(), type));
    if (!best || best.dst_desc().get_inner_blks().empty()) return channels_last;
    ConvProblem problem = channels_last;
    problem.x = best.src_desc();
    problem.y = best.dst_desc();
    const Forward hint = problem.MakeForward(problem.x, any, problem.y);
    const bool training = request.mode == Mode::kTraining;
    const bool fast = AnyFast(problem.ForwardCandidates(any)) &&
                      (!training || !request.need_input_grad.at(0) ||
                       AnyFast(problem.DataCandidates(any, hint))) &&
                      (!training || !request.need_param_grad ||
                       AnyFast(problem.WeightsCandidates(any, weight_dims, type, hint)));
    return fast ? problem : channels_last;
  }

  static bool AnyFast(const std::vector<Candidate>& candidates) {
    return std::any_of(candidates.begin(), candidates.end(),
                       [](const Candidate& c) { return !IsReference(c.name()); });
  }

  ConvOptions o_;
  std::optional<BatchNormOptions> norm_;  // the one behind
};

}  // namespace

LayerPtr Conv(const ConvOptions& options) { return std::make_shared<ConvLayer>(options); }

}  // namespace parax
