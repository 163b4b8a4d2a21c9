#include "parax/engine/param_store.h"

#include <algorithm>

#include "parax/base/error.h"
#include "parax/base/parallel_internal.h"

namespace parax {
namespace {

size_t Index(int i) { return static_cast<size_t>(i); }

// Where the elements of a tensor lie in memory: element j of the i-th slice of the first dimension
// at first[i] + rest[j], as each dimension of a blocked layout adds its own share to the offset.
struct Positions {
  std::vector<uint32_t> first = {0}, rest = {0};

  explicit Positions(const Layout& layout) {
    if (layout.elements() >= IndexMap::kNone) {
      Fail("a tensor of 2^32 elements or more is too large");
    }
    const Dims dims = layout.dims();
    Dims at(dims.size(), 0);
    const size_t origin = layout.Offset(at);
    for (size_t d = 0; d < dims.size(); ++d) {
      std::vector<uint32_t>& sums = d == 0 ? first : rest;
      std::vector<uint32_t> next;
      std::vector<uint32_t> share;
      for (at[d] = 0; at[d] < dims[d]; ++at[d]) {
        share.push_back(static_cast<uint32_t>(layout.Offset(at) - (d == 0 ? 0 : origin)));
      }
      at[d] = 0;
      for (const uint32_t sum : sums) {
        for (const uint32_t one : share) next.push_back(sum + one);
      }
      sums = std::move(next);
    }
  }
  // call(element in row-major order, position)
  template <typename Call>
  void ForEach(const Call& call) const {
    size_t element = 0;
    for (const uint32_t i : first) {
      for (const uint32_t j : rest) call(element++, i + j);
    }
  }
};

void Gather(std::span<const float> packed, const Layout& layout, std::vector<float>& canonical) {
  canonical.resize(static_cast<size_t>(Product(layout.dims())));
  Positions(layout).ForEach([&](size_t i, uint32_t position) { canonical[i] = packed[position]; });
}

void Scatter(const std::vector<float>& canonical, const Layout& layout, void* packed) {
  WithElement(layout.dtype(), [&]<typename T>(T) {
    T* to = static_cast<T*>(packed);
    Positions(layout).ForEach([&](size_t i, uint32_t position) { to[position] = T(canonical[i]); });
  });
}

const NamedTensor& Find(const TensorMap& tensors, const std::string& name, const Dims& dims) {
  const auto it = tensors.find(name);
  if (it == tensors.end()) Fail("tensor {} is missing", name);
  if (Product(it->second.dims) != Product(dims)) Fail("tensor {} has the wrong size", name);
  return it->second;
}

// Where each element of the master goes in a packed form.
IndexMap MapBetween(const Layout& master, const Layout& form) {
  if (form == master && !form.padded()) {
    const auto elements = static_cast<uint32_t>(form.elements());
    return {.run = elements, .base = {0}, .copy_elements = elements};
  }
  std::vector<uint32_t> from;
  Positions(master).ForEach([&](size_t, uint32_t position) { from.push_back(position); });
  std::vector<uint32_t> position(master.elements(), IndexMap::kNone);
  Positions(form).ForEach([&](size_t i, uint32_t to) { position[from[i]] = to; });
  IndexMap map = CompressIndexMap(position, form.elements());
  map.type = form.dtype();
  return map;
}

}  // namespace

ParamStore::ParamStore(std::vector<const Plan*> plans, std::vector<int> domain_nodes)
    : plans_(std::move(plans)), domain_nodes_(std::move(domain_nodes)) {
  const size_t params = plan().params.size();
  forms_.resize(params);
  for (const Plan* p : plans_) {
    for (const PlanForm& form : p->forms) {
      auto& known = forms_[Index(form.param)];
      if (std::find(known.begin(), known.end(), form.layout) == known.end()) {
        known.push_back(form.layout);
      }
    }
  }
  const bool training = plan().options.mode == Mode::kTraining;
  server_param_.assign(params, -1);
  server_moment_.assign(plan().outputs.size(), -1);
  for (size_t p = params; p-- > 0;) {  // backward order
    if (!training || !plan().params[p].trainable) continue;
    server_param_[p] = static_cast<int>(server_order_.size());
    server_order_.push_back(static_cast<int>(p));
  }
  if (training) {
    for (const PlanMoment& moment : plan().moments) {
      server_moment_[Index(moment.node)] = static_cast<int>(moment_nodes_.size());
      moment_nodes_.push_back(moment.node);
    }
  }

  own_params_.resize(params);
  size_t bytes = 0;
  for (size_t p = 0; p < params; ++p) {
    if (server_param_[p] >= 0) continue;
    std::vector<size_t> offsets;
    for (const Layout& form : forms_[p]) {
      offsets.push_back(bytes);
      bytes += (form.bytes() + 63) / 64 * 64;
    }
    own_params_[p].offset.assign(domain_nodes_.size(), offsets);
  }
  for (const int node : domain_nodes_) {
    own_.emplace_back(std::max<size_t>(bytes, 1), ArenaOptions{node, false});
  }
  for (const PlanState& state : plan().states) {
    own_states_.emplace_back(Index(static_cast<int>(Product(state.spec.dims))), state.spec.initial);
  }
}

void ParamStore::DescribeTo(ServerOptions& options) const {
  options.parameters.resize(server_order_.size());
  ParallelFor(server_order_.size(), [&](size_t i) {
    const size_t p = Index(server_order_[i]);
    const PlanParam& param = plan().params[p];
    ParameterSpec& spec = options.parameters[i];
    spec.name = param.name;
    spec.elements = param.grad.elements();
    spec.decay = param.spec.decay;
    for (const Layout& form : forms_[p]) spec.forms.push_back(MapBetween(param.grad, form));
  });
  for (const PlanMoment& moment : plan().moments) {
    MomentSpec spec;
    spec.channels = moment.channels;
    options.moments.push_back(spec);
  }
  options.domain_node = domain_nodes_;
}

void ParamStore::Attach(GradientServer* server) { server_ = server; }

const void* ParamStore::Form(int domain, const Plan& plan, int form) const {
  const PlanForm& wanted = plan.forms[Index(form)];
  const auto& known = forms_[Index(wanted.param)];
  const auto it = std::find(known.begin(), known.end(), wanted.layout);
  if (it == known.end())
    Fail("no packed form {} of parameter {}", wanted.layout.ToString(),
         plan.params[Index(wanted.param)].name);
  const int index = static_cast<int>(it - known.begin());
  const int server_param = server_param_[Index(wanted.param)];
  if (server_param >= 0) return server_->form(domain, server_param, index);
  return own_[Index(domain)].data() +
         own_params_[Index(wanted.param)].offset[Index(domain)][Index(index)];
}

std::span<float> ParamStore::MutableState(int state) {
  const PlanState& s = plan().states[Index(state)];
  const int moment = server_moment_[Index(s.node)];
  if (moment < 0 || server_ == nullptr) return own_states_[Index(state)];
  return s.index == 0 ? server_->running_mean(moment) : server_->running_variance(moment);
}

const float* ParamStore::State(int state) const {
  return const_cast<ParamStore*>(this)->MutableState(state).data();
}

void ParamStore::Load(const TensorMap& tensors) {
  ParallelFor(plan().params.size(), [&](size_t p) {
    const PlanParam& param = plan().params[p];
    const NamedTensor& tensor = Find(tensors, param.name, param.spec.dims);
    if (server_param_[p] >= 0) {
      Scatter(tensor.values, param.grad, server_->master(server_param_[p]).data());
      return;
    }
    own_params_[p].canonical = tensor.values;
    for (size_t d = 0; d < own_.size(); ++d) {
      for (size_t f = 0; f < forms_[p].size(); ++f) {
        Scatter(tensor.values, forms_[p][f], own_[d].data() + own_params_[p].offset[d][f]);
      }
    }
  });
  for (size_t s = 0; s < plan().states.size(); ++s) {
    const NamedTensor& tensor = Find(tensors, plan().states[s].name, plan().states[s].spec.dims);
    std::copy(tensor.values.begin(), tensor.values.end(),
              MutableState(static_cast<int>(s)).begin());
  }
  if (server_ == nullptr) return;
  for (const int p : server_order_) {
    const int s = server_param_[Index(p)];
    const auto ema = server_->ema(s);
    if (!ema.empty()) std::copy_n(server_->master(s).begin(), ema.size(), ema.begin());
  }
  server_->RefreshForms();
}

TensorMap ParamStore::ExportFrom(bool ema) const {
  TensorMap tensors;
  for (size_t p = 0; p < plan().params.size(); ++p) {
    const PlanParam& param = plan().params[p];
    NamedTensor& tensor = tensors[param.name];
    tensor.dims = param.spec.dims;
    if (server_param_[p] < 0) {
      tensor.values = own_params_[p].canonical;
    } else {
      Gather(ema ? server_->ema(server_param_[p]) : server_->master(server_param_[p]), param.grad,
             tensor.values);
    }
  }
  for (size_t s = 0; s < plan().states.size(); ++s) {
    const PlanState& state = plan().states[s];
    const float* values = State(static_cast<int>(s));
    tensors[state.name] = {state.spec.dims, {values, values + Product(state.spec.dims)}};
  }
  return tensors;
}

TensorMap ParamStore::Export() const { return ExportFrom(false); }

TensorMap ParamStore::ExportEma() const {
  if (server_ == nullptr || server_order_.empty() || server_->ema(0).empty()) return {};
  return ExportFrom(true);
}

TensorMap ParamStore::ExportOptimizer(const OptimizerOptions& optimizer) const {
  TensorMap tensors;
  const std::vector<std::string> names = StateNames(optimizer);
  for (const int p : server_order_) {
    const PlanParam& param = plan().params[Index(p)];
    for (size_t i = 0; i < names.size(); ++i) {
      NamedTensor& tensor = tensors[param.name + "." + names[i]];
      tensor.dims = param.spec.dims;
      Gather(server_->state(server_param_[Index(p)], static_cast<int>(i)), param.grad,
             tensor.values);
    }
  }
  return tensors;
}

void ParamStore::LoadOptimizer(const TensorMap& tensors, const OptimizerOptions& optimizer) {
  const std::vector<std::string> names = StateNames(optimizer);
  for (const int p : server_order_) {
    const PlanParam& param = plan().params[Index(p)];
    for (size_t i = 0; i < names.size(); ++i) {
      Scatter(Find(tensors, param.name + "." + names[i], param.spec.dims).values, param.grad,
              server_->state(server_param_[Index(p)], static_cast<int>(i)).data());
    }
  }
}

void ParamStore::LoadEma(const TensorMap& tensors) {
  for (const int p : server_order_) {
    const PlanParam& param = plan().params[Index(p)];
    Scatter(Find(tensors, param.name, param.spec.dims).values, param.grad,
            server_->ema(server_param_[Index(p)]).data());
  }
}

}  // namespace parax
