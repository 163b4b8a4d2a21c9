#include <fmt/ranges.h>

#include <algorithm>

#include "parax/layers/finish_internal.h"
#include "parax/layers/reorder.h"
#include "parax/layers/weighted_internal.h"

namespace parax {
namespace {

std::vector<std::string> Names(const std::vector<Candidate>& candidates) {
  std::vector<std::string> names;
  for (const Candidate& candidate : candidates)
    if (std::find(names.begin(), names.end(), candidate.name()) == names.end())
      names.push_back(candidate.name());
  return names;
}

// The wanted one; else the preferred one; else the first in oneDNN's order that is no
// reference implementation, matrix products and kernels of ours last (only measurements know when
// they win); else the first.
const Candidate& Choose(const std::vector<Candidate>& candidates, const std::string& wanted,
                        const std::vector<std::string>& preferred, const std::string& what) {
  if (candidates.empty()) Fail("{}: no implementation", what);
  const auto find = [&](const auto& fits) {
    return std::find_if(candidates.begin(), candidates.end(), fits);
  };
  if (!wanted.empty()) {
    const auto found = find([&](const Candidate& c) { return c.name() == wanted; });
    if (found != candidates.end()) return *found;
    Fail("{}: no implementation '{}'; there are {}", what, wanted,
         fmt::join(Names(candidates), ", "));
  }
  for (const std::string& name : preferred) {
    const auto own = find([&](const Candidate& c) { return c.name() == name; });
    if (own != candidates.end()) return *own;
  }
  auto found =
      find([](const Candidate& c) { return !c.own && c.prefix.empty() && !IsReference(c.name()); });
  if (found == candidates.end())
    found = find([](const Candidate& c) { return !IsReference(c.name()); });
  return found == candidates.end() ? candidates.front() : *found;
}

bool IsReorder(const std::string& implementation) {
  return implementation.rfind(kReorderPrefix, 0) == 0;
}

// Builds a CompiledLayer pass by pass. Where a layout fixed by an earlier plan leaves only a
// reference implementation, a reorder through a temporary goes round it.
class Builder {
 public:
  Builder(const WeightedRule& rule, const CompileRequest& request)
      : rule_(rule), request_(request) {}

  // Candidates against every packed form an earlier plan fixed, in their order.
  std::vector<Candidate> AgainstForms(const CandidateMaker& maker) const {
    if (request_.fixed_forms.empty()) return maker(Any());
    std::vector<Candidate> all;
    for (const ParamFormSpec& form : request_.fixed_forms) {
      if (form.param != 0) continue;
      const std::vector<Candidate> some = maker(DescOf(form.layout));
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

  std::vector<Candidate> AgainstGrad() const {
    return rule_.backward_weights(
        request_.fixed_grads.empty() ? Any() : DescOf(request_.fixed_grads.at(0)));
  }

  dnnl::memory::desc Any() const { return AnyDesc(rule_.weight_dims, rule_.dtype); }

  CompiledLayer Build() {
    result_.inputs = {LayoutOf(rule_.input)};
    if (rule_.norm && rule_.norm->add) result_.inputs.push_back(LayoutOf(rule_.output));
    result_.output = LayoutOf(rule_.output);
    result_.forms = request_.fixed_forms;
    result_.grads = request_.fixed_grads;
    const bool training = request_.mode == Mode::kTraining;
    if (rule_.norm) AddNormScale();
    AddReader(result_.forward, OpKind::kForward, rule_.forward, Role::kInput, Role::kOutput);
    if (training && request_.need_input_grad.at(0))
      AddReader(result_.backward, OpKind::kBackwardData, rule_.backward_data, Role::kOutputGrad,
                Role::kInputGrad);
    if (training && request_.need_param_grad) AddWeights();
    // Without a gradient kernel the master copy may as well be canonical.
    if (result_.grads.empty()) result_.grads = {Layout::Plain(rule_.weight_dims, rule_.dtype)};
    if (rule_.bias > 0 && result_.grads.size() == 1)
      result_.grads.push_back(LayoutOf(RowDesc(rule_.bias)));
    if (rule_.norm && static_cast<int>(result_.grads.size()) == NormParam())
      result_.grads.insert(result_.grads.end(), 2, LayoutOf(NormDesc()));
    return std::move(result_);
  }

 private:
  std::string WantedNext(size_t ahead = 0) const {
    return Wanted(request_, result_.forward.size() + result_.backward.size() + ahead);
  }

  dnnl::memory::desc RowDesc(int64_t values) const {
    return DescOf(Layout::Plain({values}, rule_.dtype));
  }
  dnnl::memory::desc NormDesc() const { return RowDesc(rule_.norm->channels); }
  int NormParam() const { return rule_.bias > 0 ? 2 : 1; }  // number of the norm's weight

  void AddNormScale() {
    const Argument weight{Role::kParamForm, Form(NormParam(), NormDesc())};
    scale_ = NewTemp(NormDesc());
    result_.forward.push_back(OwnOp(
        OpKind::kForward, MakeNormScale(rule_.norm->channels, rule_.norm->epsilon),
        {weight, {Role::kState, 1}, scale_}, 3.0 * static_cast<double>(NormDesc().get_size())));
    scale_.write = false;
  }

  // A pass that reads the weights: forward, backward data.
  void AddReader(std::vector<CompiledOp>& ops, OpKind kind, const CandidateMaker& maker, Role from,
                 Role to) {
    std::vector<Candidate> candidates = AgainstForms(maker);
    bool detour = IsReorder(WantedNext());
    if (!detour && WantedNext().empty() && OnlyReference(candidates))
      detour = !OnlyReference(maker(Any()));
    if (detour) candidates = maker(Any());
    const Candidate chosen =
        Choose(candidates, WantedNext(detour ? 1 : 0), rule_.preferred, rule_.what);
    Argument weights{Role::kParamForm};
    if (detour) {
      weights = NewTemp(chosen.weights);
      AddReorder(ops, kind, request_.fixed_forms.at(0).layout, {Role::kParamForm},
                 LayoutOf(chosen.weights), weights);
      weights.write = false;
    } else {
      weights.index = Form(0, chosen.weights);
    }
    std::vector<Argument> arguments = {{from}, weights};
    if (rule_.bias > 0 && kind == OpKind::kForward)
      arguments.push_back({Role::kParamForm, Form(1, RowDesc(rule_.bias))});
    const int output = static_cast<int>(arguments.size());
    arguments.push_back({to, 0, true});
    if (rule_.norm) {
      arguments.insert(arguments.end(), {{Role::kState, 0},
                                         scale_,
                                         {Role::kParamForm, Form(NormParam() + 1, NormDesc())},
                                         rule_.norm->add ? Argument{Role::kInput, 1} : scale_});
    }
    Add(ops, kind, chosen, arguments);
    if (rule_.norm && rule_.norm->add && chosen.in_place) {
      ops.back().in_place_from = static_cast<int>(arguments.size()) - 1;
      ops.back().in_place_to = output;
    }
  }

  void AddWeights() {
    std::vector<Candidate> candidates = AgainstGrad();
    bool detour = IsReorder(WantedNext(1));
    if (!detour && WantedNext().empty() && OnlyReference(candidates))
      detour = !OnlyReference(rule_.backward_weights(Any()));
    if (detour) candidates = rule_.backward_weights(Any());
    const Candidate chosen =
        Choose(candidates, WantedNext(), rule_.preferred, rule_.what + " backward weights");
    const Argument grad{Role::kParamGrad, 0, true};
    Argument written = detour ? NewTemp(chosen.weights) : grad;
    std::vector<Argument> arguments = {{Role::kInput}, {Role::kOutputGrad}, written};
    if (rule_.bias > 0) arguments.push_back({Role::kParamGrad, 1, true});
    Add(result_.backward, OpKind::kBackwardWeights, chosen, arguments);
    if (result_.grads.empty()) result_.grads = {LayoutOf(chosen.weights)};
    if (!detour) return;
    written.write = false;
    AddReorder(result_.backward, OpKind::kBackwardWeights, LayoutOf(chosen.weights), written,
               result_.grads[0], grad);
  }

  static bool OnlyReference(const std::vector<Candidate>& candidates) {
    return std::all_of(candidates.begin(), candidates.end(),
                       [](const Candidate& c) { return IsReference(c.name()); });
  }

  Argument NewTemp(const dnnl::memory::desc& desc) {
    result_.temps.push_back(desc.get_size());
    return {Role::kTemp, static_cast<int>(result_.temps.size()) - 1, true};
  }

  // Passes that read the same layout share one packed form.
  int Form(int param, const dnnl::memory::desc& desc) {
    std::vector<ParamFormSpec>& forms = result_.forms;
    for (size_t i = 0; i < forms.size(); ++i)
      if (forms[i].param == param && DescOf(forms[i].layout) == desc) return static_cast<int>(i);
    if (!request_.fixed_forms.empty())
      Fail("{}: its weights have no packed form {}", rule_.what, LayoutOf(desc).ToString());
    forms.push_back({param, LayoutOf(desc)});
    return static_cast<int>(forms.size()) - 1;
  }

  void Add(std::vector<CompiledOp>& ops, OpKind kind, const Candidate& candidate,
           std::vector<Argument> arguments) const {
    std::shared_ptr<const Kernel> kernel =
        candidate.own ? candidate.own
                      : MakeOnednnKernel(candidate.pd, candidate.arguments, candidate.prefix);
    const Layout layout = LayoutOf(candidate.weights);
    if (kind == OpKind::kBackwardWeights && layout.padded())
      kernel = ZeroPadding(std::move(kernel), 2, layout);
    ops.push_back(MakeOp(kind, std::move(kernel), std::move(arguments)));
    ops.back().flops = rule_.flops;
    for (const OnednnArgument& argument : candidate.arguments)
      ops.back().bytes += static_cast<double>(argument.desc.get_size());
  }

  static void AddReorder(std::vector<CompiledOp>& ops, OpKind kind, const Layout& from,
                         const Argument& source, const Layout& to, const Argument& target) {
    ops.push_back(MakeOp(kind, MakeReorder(from, to), {source, target}));
    ops.back().bytes = static_cast<double>(from.bytes() + to.bytes());
  }

  const WeightedRule& rule_;
  const CompileRequest& request_;
  CompiledLayer result_;
  Argument scale_{Role::kTemp};  // of the norm
};

}  // namespace

CompiledLayer CompileWeighted(const WeightedRule& rule, const CompileRequest& request) {
  return Builder(rule, request).Build();
}

std::vector<std::string> WeightedCandidates(const WeightedRule& rule, const CompileRequest& request,
                                            int op) {
  Builder builder(rule, request);
  const size_t index = static_cast<size_t>(op), first = rule.norm ? 1 : 0;
  if (index < first) return {kNormScaleName};
  if (request.fixed_forms.empty() && request.fixed_grads.empty() &&
      request.implementations.empty()) {  // no detours: nothing need be compiled to know the ops
    const bool training = request.mode == Mode::kTraining;
    std::vector<const CandidateMaker*> makers = {&rule.forward};
    if (training && request.need_input_grad.at(0)) makers.push_back(&rule.backward_data);
    if (training && request.need_param_grad) makers.push_back(&rule.backward_weights);
    return Names((*makers.at(index - first))(builder.Any()));
  }
  const CompiledLayer layer = builder.Build();
  std::vector<CompiledOp> ops = layer.forward;
  ops.insert(ops.end(), layer.backward.begin(), layer.backward.end());
  const CompiledOp& wanted = ops.at(index);
  if (IsReorder(wanted.kernel->implementation())) return {wanted.kernel->implementation()};
  const bool detour = std::any_of(wanted.arguments.begin(), wanted.arguments.end(),
                                  [](const Argument& a) { return a.role == Role::kTemp; });
  const CandidateMaker& maker = wanted.kind == OpKind::kForward        ? rule.forward
                                : wanted.kind == OpKind::kBackwardData ? rule.backward_data
                                                                       : rule.backward_weights;
  if (detour) return Names(maker(builder.Any()));
  return Names(wanted.kind == OpKind::kBackwardWeights ? builder.AgainstGrad()
                                                       : builder.AgainstForms(maker));
}

void AddMatmulWeightGradients(int64_t pixels, int64_t inputs, int64_t outputs, DType type,
                              const Dims& weight_dims, const dnnl::memory::desc& weights,
                              std::vector<Candidate>& candidates) {
  const bool any = weights.get_format_kind() == dnnl::memory::format_kind::any;
  const dnnl::memory::desc x = DescOf(Layout::Plain({pixels, inputs}, type));
  const dnnl::memory::desc dy = DescOf(Layout::Plain({pixels, outputs}, type));
  const dnnl::memory::data_type number = x.get_data_type();
  Dims transposed_strides(weight_dims.size(), inputs * outputs);
  transposed_strides[0] = 1;
  transposed_strides[1] = outputs;
  for (const bool transposed : {false, true}) {
    const dnnl::memory::desc grad =
        transposed ? dnnl::memory::desc(weight_dims, number, transposed_strides)
                   : DescOf(Layout::Plain(weight_dims, type));
    if (!any && grad != weights) continue;
    const dnnl::memory::desc& left = transposed ? x : dy;
    const dnnl::memory::desc& right = transposed ? dy : x;
    const dnnl::memory::desc product = DescOf(transposed ? Layout::Plain({inputs, outputs}, type)
                                                         : Layout::Plain({outputs, inputs}, type));
    const dnnl::memory::desc left_transposed = left.permute_axes({1, 0});
    for (const auto& pd : AllImplementations(dnnl::matmul::primitive_desc(
             OnednnEngine(), left_transposed, right, product, UserScratchpad(), true))) {
      const int x_id = transposed ? DNNL_ARG_SRC : DNNL_ARG_WEIGHTS;
      const int dy_id = transposed ? DNNL_ARG_WEIGHTS : DNNL_ARG_SRC;
      candidates.push_back({pd,
                            {{x_id, transposed ? left_transposed : x},
                             {dy_id, transposed ? dy : left_transposed},
                             {DNNL_ARG_DST, product}},
                            grad,
                            transposed ? "matmul_t:" : "matmul:"});
    }
  }
}

}  // namespace parax
