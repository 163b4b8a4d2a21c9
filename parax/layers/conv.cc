#include <algorithm>
#include <optional>

#include "parax/layers/gemm_internal.h"
#include "parax/layers/layers.h"
#include "parax/layers/weighted_internal.h"
#include "parax/layers/winograd_internal.h"

namespace parax {
namespace {

using dnnl::memory;
using Forward = dnnl::convolution_forward::primitive_desc;
using BackwardData = dnnl::convolution_backward_data::primitive_desc;
using BackwardWeights = dnnl::convolution_backward_weights::primitive_desc;
constexpr int64_t kLeastWinogradTiles = 32;
constexpr dnnl::algorithm kDirect = dnnl::algorithm::convolution_direct;

// One convolution at one batch size: what all its primitive descriptors have in common.
struct Problem {
  ConvOptions options;
  int threads;
  Dims stride, dilation, padding;
  memory::desc bias;  // empty: none
  memory::desc x, y;

  // Ours for 3x3 with stride 1, where x and y are panels of whole vectors.
  std::optional<WinogradConv> Winograd() const {
    WinogradConv conv;
    const bool fits = options.kernel == 3 && options.stride == 1 && options.dilation == 1 &&
                      options.groups == 1 && !options.bias && options.padding <= 2 &&
                      x.get_data_type() == memory::data_type::f32 &&
                      WinogradWorks(options.in_channels, options.out_channels) &&
                      DescOf(UsableLayout(LayoutOf(x), conv.x)) == x &&
                      DescOf(UsableLayout(LayoutOf(y), conv.y)) == y;
    if (!fits) return std::nullopt;
    conv.padding = options.padding;
    conv.threads = threads;
    return conv;
  }

  // Ours for channels last and whole vectors.
  std::optional<GemmConv> Gemm() const {
    const Dims in = x.get_dims(), out = y.get_dims();
    const bool fits =
        options.groups == 1 && !options.bias && x.get_data_type() == memory::data_type::f32 &&
        GemmWorks(options.in_channels, options.out_channels) &&
        DescOf(Layout::ChannelsLast(in)) == x && DescOf(Layout::ChannelsLast(out)) == y;
    if (!fits) return std::nullopt;
    return GemmConv{
        in[0],  in[2],          in[3],          in[1],           out[2],           out[3],
        out[1], options.kernel, options.stride, options.padding, options.dilation, threads};
  }

  // The weights as our kernels read and write them: [kernel][kernel][in][out] in every pass, which
  // spares the optimizer further packed forms.
  memory::desc OwnWeights() const {
    const int64_t in = options.in_channels, out = options.out_channels, k = options.kernel;
    return memory::desc({out, in, k, k}, memory::data_type::f32, {1, out, k * in * out, in * out});
  }

  static void AddOwn(std::shared_ptr<const Kernel> kernel, std::vector<OnednnArgument> arguments,
                     const memory::desc& own_weights, const memory::desc& weights,
                     std::vector<Candidate>& all) {
    const bool any = weights.get_format_kind() == memory::format_kind::any;
    if (any || weights == own_weights)
      all.push_back({{}, std::move(arguments), own_weights, "", std::move(kernel)});
  }

  Forward MakeForward(const memory::desc& source, const memory::desc& weights,
                      const memory::desc& target) const {
    return options.bias ? Forward(OnednnEngine(), dnnl::prop_kind::forward_training, kDirect,
                                  source, weights, bias, target, stride, dilation, padding, padding,
                                  UserScratchpad(), true)
                        : Forward(OnednnEngine(), dnnl::prop_kind::forward_training, kDirect,
                                  source, weights, target, stride, dilation, padding, padding,
                                  UserScratchpad(), true);
  }

  std::vector<Candidate> ForwardCandidates(const memory::desc& weights) const {
    std::vector<Candidate> all;
    AddCandidates(
        MakeForward(x, weights, y), [](const Forward& pd) { return pd.weights_desc(); },
        [&](const Forward& pd) {
          std::vector<OnednnArgument> arguments = {{DNNL_ARG_SRC, x},
                                                   {DNNL_ARG_WEIGHTS, pd.weights_desc()}};
          if (options.bias) arguments.push_back({DNNL_ARG_BIAS, bias});
          arguments.push_back({DNNL_ARG_DST, y});
          return arguments;
        },
        all);
    const memory::desc own = OwnWeights();
    if (const auto conv = Winograd())
      AddOwn(MakeWinogradConv(*conv, false), {{0, x}, {0, own}, {0, y}}, own, weights, all);
    if (const auto conv = Gemm())
      AddOwn(MakeGemmForward(*conv), {{0, x}, {0, own}, {0, y}}, own, weights, all);
    return all;
  }

  std::vector<Candidate> DataCandidates(const memory::desc& weights, const Forward& hint) const {
    std::vector<Candidate> all;
    AddCandidates(
        BackwardData(OnednnEngine(), kDirect, x, weights, y, stride, dilation, padding, padding,
                     hint, UserScratchpad(), true),
        [](const BackwardData& pd) { return pd.weights_desc(); },
        [&](const BackwardData& pd) {
          return std::vector<OnednnArgument>{{DNNL_ARG_DIFF_DST, y},
                                             {DNNL_ARG_WEIGHTS, pd.weights_desc()},
                                             {DNNL_ARG_DIFF_SRC, x}};
        },
        all);
    const memory::desc own = OwnWeights();
    if (auto conv = Winograd()) {
      std::swap(conv->x, conv->y);
      conv->padding = 2 - conv->padding;
      AddOwn(MakeWinogradConv(*conv, true), {{0, y}, {0, own}, {0, x}}, own, weights, all);
    }
    if (const auto conv = Gemm())
      AddOwn(MakeGemmInputGrad(*conv), {{0, y}, {0, own}, {0, x}}, own, weights, all);
    return all;
  }

  std::vector<Candidate> WeightsCandidates(const memory::desc& weights, const Dims& weight_dims,
                                           DType type, const Forward& hint) const {
    std::vector<Candidate> all;
    const BackwardWeights first =
        options.bias ? BackwardWeights(OnednnEngine(), kDirect, x, weights, bias, y, stride,
                                       dilation, padding, padding, hint, UserScratchpad(), true)
                     : BackwardWeights(OnednnEngine(), kDirect, x, weights, y, stride, dilation,
                                       padding, padding, hint, UserScratchpad(), true);
    AddCandidates(
        first, [](const BackwardWeights& pd) { return pd.diff_weights_desc(); },
        [&](const BackwardWeights& pd) {
          std::vector<OnednnArgument> arguments = {{DNNL_ARG_SRC, x},
                                                   {DNNL_ARG_DIFF_DST, y},
                                                   {DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc()}};
          if (options.bias) arguments.push_back({DNNL_ARG_DIFF_BIAS, bias});
          return arguments;
        },
        all);
    // oneDNN 3.2: with strides and channels last its threads race, which gives wrong sums or hangs.
    if (options.stride > 1 && threads > 1)
      std::erase_if(all, [](const Candidate& c) { return c.name() == "jit_1x1:avx2"; });
    const Dims in = x.get_dims(), out = y.get_dims();
    const bool is_product = options.kernel == 1 && options.stride == 1 && options.padding == 0 &&
                            options.groups == 1 && !options.bias;
    if (is_product && x == DescOf(Layout::ChannelsLast(in, type)) &&
        y == DescOf(Layout::ChannelsLast(out, type)))
      AddMatmulWeightGradients(in[0] * in[2] * in[3], in[1], out[1], type, weight_dims, weights,
                               all);
    const memory::desc own = OwnWeights();
    if (const auto conv = Winograd())
      AddOwn(MakeWinogradWeightGrad(*conv), {{0, x}, {0, y}, {0, own}}, own, weights, all);
    if (const auto conv = Gemm())
      AddOwn(MakeGemmWeightGrad(*conv), {{0, x}, {0, y}, {0, own}}, own, weights, all);
    return all;
  }
};

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
    if (inputs.size() != 1 || inputs[0].size() != 4 || inputs[0][1] != o_.in_channels)
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
    return params;
  }

  CompiledLayer Compile(const CompileRequest& request) const override {
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
    const Dims in = given.dims(), out = OutputDims({in});
    const DType type = given.dtype();
    if (request.emulate && type == DType::kBF16)
      return EmulateBf16(Rule(FloatRequest(request)), request.threads);
    Problem problem;
    problem.options = o_;
    problem.threads = request.threads;
    problem.stride = {o_.stride, o_.stride};
    problem.dilation = {o_.dilation - 1, o_.dilation - 1};
    problem.padding = {o_.padding, o_.padding};
    if (o_.bias) problem.bias = DescOf(Layout::Plain({o_.out_channels}));
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
  static Problem Blocked(const Problem& channels_last, const Layout& given,
                         const CompileRequest& request, const Dims& weight_dims) {
    const DType type = given.dtype();
    const memory::desc any = AnyDesc(weight_dims, type);
    const bool keep = !DescOf(given).get_inner_blks().empty();
    const Forward best =
        channels_last.MakeForward(keep ? DescOf(given) : AnyDesc(given.dims(), type), any,
                                  AnyDesc(channels_last.y.get_dims(), type));
    if (!best || best.dst_desc().get_inner_blks().empty()) return channels_last;
    Problem problem = channels_last;
    problem.x = best.src_desc();
    problem.y = best.dst_desc();
    const Forward hint = problem.MakeForward(problem.x, any, problem.y);
    const bool training = request.mode == Mode::kTraining;
    const bool fast = AnyFast(problem.ForwardCandidates(any)) &&
                      (!training || !request.need_input_grad.at(0) ||
                       AnyFast(problem.DataCandidates(any, hint))) &&
                      (!training || !request.need_param_grad ||
                       AnyFast(problem.WeightsCandidates(AnyDesc(weight_dims, DType::kF32), weight_dims,
                                                   type, hint)));
    return fast ? problem : channels_last;
  }

  static bool AnyFast(const std::vector<Candidate>& candidates) {
    return std::any_of(candidates.begin(), candidates.end(),
                       [](const Candidate& c) { return !IsReference(c.name()); });
  }

  ConvOptions o_;
};

}  // namespace

LayerPtr Conv(const ConvOptions& options) { return std::make_shared<ConvLayer>(options); }

}  // namespace parax
