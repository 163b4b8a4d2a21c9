#include "parax/layers/conv_internal.h"

namespace parax {
namespace {

using dnnl::memory;
using Forward = dnnl::convolution_forward::primitive_desc;
using BackwardData = dnnl::convolution_backward_data::primitive_desc;
using BackwardWeights = dnnl::convolution_backward_weights::primitive_desc;
constexpr dnnl::algorithm kDirect = dnnl::algorithm::convolution_direct;

// Appends a kernel of ours unless the weights are fixed in another layout than it wants.
void AddOwn(std::shared_ptr<const Kernel> kernel, std::vector<OnednnArgument> arguments,
            const memory::desc& own_weights, const memory::desc& weights,
            std::vector<Candidate>& all, bool in_place = false) {
  const bool any = weights.get_format_kind() == memory::format_kind::any;
  if (any || weights == own_weights)
    all.push_back({{}, std::move(arguments), own_weights, "", std::move(kernel), in_place});
}

}  // namespace

std::optional<FinishOptions> ConvProblem::Finishing() const {
  if (!norm) return std::nullopt;
  return FinishOptions{norm->add, norm->relu};
}

dnnl::primitive_attr ConvProblem::Attributes() const {
  dnnl::primitive_attr attributes = UserScratchpad();
  if (!norm) return attributes;
  dnnl::post_ops steps;
  steps.append_binary(dnnl::algorithm::binary_sub, NormRow());
  steps.append_binary(dnnl::algorithm::binary_mul, NormRow());
  steps.append_binary(dnnl::algorithm::binary_add, NormRow());
  if (norm->add) steps.append_binary(dnnl::algorithm::binary_add, y);
  if (norm->relu) steps.append_eltwise(dnnl::algorithm::eltwise_relu, 0, 0);
  attributes.set_post_ops(steps);
  return attributes;
}

memory::desc ConvProblem::NormRow() const {
  return DescOf(Layout::Plain({1, options.out_channels, 1, 1}));
}

void ConvProblem::AddNormArguments(std::vector<OnednnArgument>& arguments) const {
  if (!norm) return;
  const auto step = [](int i) { return DNNL_ARG_ATTR_MULTIPLE_POST_OP(i) | DNNL_ARG_SRC_1; };
  for (int i = 0; i < 3; ++i) arguments.push_back({step(i), NormRow()});
  // Without a residual the op's argument is not the primitive's.
  arguments.push_back(norm->add ? OnednnArgument{step(3), y} : OnednnArgument{0, NormRow()});
}

std::optional<WinogradConv> ConvProblem::Winograd() const {
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
  conv.finish = Finishing();
  return conv;
}

std::optional<GemmConv> ConvProblem::Gemm() const {
  const Dims in = x.get_dims(), out = y.get_dims();
  const bool fits = options.groups == 1 && !options.bias &&
                    x.get_data_type() == memory::data_type::f32 &&
                    GemmWorks(options.in_channels, options.out_channels) &&
                    DescOf(Layout::ChannelsLast(in)) == x && DescOf(Layout::ChannelsLast(out)) == y;
  if (!fits) return std::nullopt;
  return GemmConv{
      in[0],  in[2],          in[3],          in[1],           out[2],           out[3],
      out[1], options.kernel, options.stride, options.padding, options.dilation, threads};
}

memory::desc ConvProblem::OwnWeights() const {
  const int64_t in = options.in_channels, out = options.out_channels, k = options.kernel;
  return memory::desc({out, in, k, k}, memory::data_type::f32, {1, out, k * in * out, in * out});
}

memory::desc ConvProblem::PackedWeights() const {
  return memory::desc({options.out_channels, options.in_channels, options.kernel, options.kernel},
                      memory::data_type::f32, memory::format_tag::Acdb64a);
}

Forward ConvProblem::MakeForward(const memory::desc& source, const memory::desc& weights,
                                 const memory::desc& target) const {
  return options.bias
             ? Forward(OnednnEngine(), dnnl::prop_kind::forward_training, kDirect, source, weights,
                       bias, target, stride, dilation, padding, padding, Attributes(), true)
             : Forward(OnednnEngine(), dnnl::prop_kind::forward_training, kDirect, source, weights,
                       target, stride, dilation, padding, padding, Attributes(), true);
}

std::vector<Candidate> ConvProblem::ForwardCandidates(const memory::desc& weights) const {
  std::vector<Candidate> all;
  AddCandidates(
      MakeForward(x, weights, y), [](const Forward& pd) { return pd.weights_desc(); },
      [&](const Forward& pd) {
        std::vector<OnednnArgument> arguments = {{DNNL_ARG_SRC, x},
                                                 {DNNL_ARG_WEIGHTS, pd.weights_desc()}};
        if (options.bias) arguments.push_back({DNNL_ARG_BIAS, bias});
        arguments.push_back({DNNL_ARG_DST, y});
        AddNormArguments(arguments);
        return arguments;
      },
      all);
  const auto add_own = [&](std::shared_ptr<const Kernel> kernel, const memory::desc& form,
                           bool in_place) {
    std::vector<OnednnArgument> arguments = {{0, x}, {0, form}, {0, y}};
    AddNormArguments(arguments);
    AddOwn(std::move(kernel), std::move(arguments), form, weights, all, in_place);
  };
  if (const auto conv = Winograd()) add_own(MakeWinogradConv(*conv, false), OwnWeights(), true);
  if (auto conv = Gemm()) {
    conv->finish = Finishing();
    conv->packed = pack && options.out_channels % kGemmGroup == 0;
    add_own(MakeGemmForward(*conv), conv->packed ? PackedWeights() : OwnWeights(),
            GemmFinishesInPlace(*conv));
  }
  return all;
}

std::vector<Candidate> ConvProblem::DataCandidates(const memory::desc& weights,
                                                   const Forward& hint) const {
  std::vector<Candidate> all;
  AddCandidates(
      BackwardData(OnednnEngine(), kDirect, x, weights, y, stride, dilation, padding, padding, hint,
                   UserScratchpad(), true),
      [](const BackwardData& pd) { return pd.weights_desc(); },
      [&](const BackwardData& pd) {
        return std::vector<OnednnArgument>{
            {DNNL_ARG_DIFF_DST, y}, {DNNL_ARG_WEIGHTS, pd.weights_desc()}, {DNNL_ARG_DIFF_SRC, x}};
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

std::vector<Candidate> ConvProblem::WeightsCandidates(const memory::desc& weights,
                                                      const Dims& weight_dims, DType type,
                                                      const Forward& hint) const {
  std::vector<Candidate> all;
  const BackwardWeights first =
      options.bias ? BackwardWeights(OnednnEngine(), kDirect, x, weights, bias, y, stride, dilation,
                                     padding, padding, hint, UserScratchpad(), true)
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
    AddMatmulWeightGradients(in[0] * in[2] * in[3], in[1], out[1], type, weight_dims, weights, all);
  const memory::desc own = OwnWeights();
  if (const auto conv = Winograd())
    AddOwn(MakeWinogradWeightGrad(*conv), {{0, x}, {0, y}, {0, own}}, own, weights, all);
  if (const auto conv = Gemm())
    AddOwn(MakeGemmWeightGrad(*conv), {{0, x}, {0, y}, {0, own}}, own, weights, all);
  return all;
}

}  // namespace parax
