#include <fmt/ranges.h>

#include <algorithm>

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

// The wanted one; else the first in oneDNN's order that is no reference implementation, and no
// matrix product (only the tuner knows when that wins); else the first.
const Candidate& Choose(const std::vector<Candidate>& candidates, const std::string& wanted,
                        const std::string& what) {
  if (candidates.empty()) Fail("{}: no implementation", what);
  const auto fits = [&](const Candidate& c) {
    return wanted.empty() ? c.prefix.empty() && !IsReference(c.name()) : c.name() == wanted;
  };
  const auto found = std::find_if(candidates.begin(), candidates.end(), fits);
  if (found != candidates.end()) return *found;
  if (!wanted.empty())
    Fail("{}: no implementation '{}'; there are {}", what, wanted,
         fmt::join(Names(candidates), ", "));
  return candidates.front();
}

// Builds a CompiledLayer pass by pass.
class Builder {
 public:
  Builder(const WeightedRule& rule, const CompileRequest& request)
      : rule_(rule), request_(request), training_(request.mode == Mode::kTraining) {}

  bool has_data() const { return training_ && request_.need_input_grad.at(0); }
  bool has_weights() const { return training_ && request_.need_param_grad; }

  // Candidates against every packed form an earlier plan fixed, in their order.
  std::vector<Candidate> AgainstForms(const CandidateMaker& maker) const {
    std::vector<Candidate> all;
    if (request_.fixed_forms.empty()) return maker(AnyDesc(rule_.weight_dims, rule_.dtype));
    for (const ParamFormSpec& form : request_.fixed_forms) {
      if (form.param != 0) continue;
      const std::vector<Candidate> some = maker(DescOf(form.layout));
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

  std::vector<Candidate> Weights() const {
    return rule_.backward_weights(request_.fixed_grads.empty()
                                      ? AnyDesc(rule_.weight_dims, rule_.dtype)
                                      : DescOf(request_.fixed_grads.at(0)));
  }

  CompiledLayer Build() {
    result_.inputs = {LayoutOf(rule_.input)};
    result_.output = LayoutOf(rule_.output);
    result_.forms = request_.fixed_forms;
    result_.grads = request_.fixed_grads;

    const Candidate forward = Choose(AgainstForms(rule_.forward), Wanted(request_, 0), rule_.what);
    std::vector<Argument> arguments = {{Role::kInput},
                                       {Role::kParamForm, Form(0, forward.weights)}};
    if (rule_.bias > 0) arguments.push_back({Role::kParamForm, Form(1, BiasDesc())});
    arguments.push_back({Role::kOutput, 0, true});
    Add(result_.forward, OpKind::kForward, forward, arguments);

    if (has_data()) {
      const Candidate data = Choose(AgainstForms(rule_.backward_data), Wanted(request_, 1),
                                    rule_.what + " backward data");
      Add(result_.backward, OpKind::kBackwardData, data,
          {{Role::kOutputGrad},
           {Role::kParamForm, Form(0, data.weights)},
           {Role::kInputGrad, 0, true}});
    }
    if (has_weights()) {
      const Candidate weights =
          Choose(Weights(), Wanted(request_, has_data() ? 2 : 1), rule_.what + " backward weights");
      arguments = {{Role::kInput}, {Role::kOutputGrad}, {Role::kParamGrad, 0, true}};
      if (rule_.bias > 0) arguments.push_back({Role::kParamGrad, 1, true});
      Add(result_.backward, OpKind::kBackwardWeights, weights, arguments);
      if (result_.grads.empty()) result_.grads = {LayoutOf(weights.weights)};
    }
    // Without a gradient kernel the master copy may as well be canonical.
    if (result_.grads.empty()) result_.grads = {Layout::Plain(rule_.weight_dims, rule_.dtype)};
    if (rule_.bias > 0 && result_.grads.size() == 1) result_.grads.push_back(LayoutOf(BiasDesc()));
    return std::move(result_);
  }

 private:
  dnnl::memory::desc BiasDesc() const { return DescOf(Layout::Plain({rule_.bias}, rule_.dtype)); }

  // Passes that read the same layout share one packed form.
  int Form(int param, const dnnl::memory::desc& desc) {
    std::vector<ParamFormSpec>& forms = result_.forms;
    for (size_t i = 0; i < forms.size(); ++i)
      if (forms[i].param == param && DescOf(forms[i].layout) == desc) return static_cast<int>(i);
    if (!request_.fixed_forms.empty())
      Fail("{}: parameter {} lacks the packed form {}", rule_.what, param,
           LayoutOf(desc).ToString());
    forms.push_back({param, LayoutOf(desc)});
    return static_cast<int>(forms.size()) - 1;
  }

  void Add(std::vector<CompiledOp>& ops, OpKind kind, const Candidate& candidate,
           std::vector<Argument> arguments) const {
    CompiledOp op =
        MakeOp(kind, MakeOnednnKernel(candidate.pd, candidate.arguments, candidate.prefix),
               std::move(arguments));
    op.flops = rule_.flops;
    for (const OnednnArgument& argument : candidate.arguments)
      op.bytes += static_cast<double>(argument.desc.get_size());
    ops.push_back(std::move(op));
  }

  const WeightedRule& rule_;
  const CompileRequest& request_;
  const bool training_;
  CompiledLayer result_;
};

}  // namespace

CompiledLayer CompileWeighted(const WeightedRule& rule, const CompileRequest& request) {
  return Builder(rule, request).Build();
}

std::vector<std::string> WeightedCandidates(const WeightedRule& rule, const CompileRequest& request,
                                            int op) {
  const Builder builder(rule, request);
  if (op == 0) return Names(builder.AgainstForms(rule.forward));
  if (op == 1 && builder.has_data()) return Names(builder.AgainstForms(rule.backward_data));
  if (op == (builder.has_data() ? 2 : 1) && builder.has_weights()) return Names(builder.Weights());
  Fail("{} has no op {}", rule.what, op);
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
