#include "parax/gradserver/server.h"

#include <cstring>
#include <utility>

#include "parax/base/error.h"
#include "parax/gradserver/reduction_internal.h"
#include "parax/gradserver/server_internal.h"

namespace parax {
namespace {

ServerOptions Checked(ServerOptions options) {
  CheckOptimizer(options.optimizer);
  const size_t leaves = options.leaf_domain.size();
  if (leaves == 0 || leaves > UINT16_MAX) FailUsage("a gradient server for {} leaves", leaves);
  for (const int domain : options.leaf_domain) {
    if (domain < 0 || static_cast<size_t>(domain) >= options.domain_node.size()) {
      FailUsage("a leaf on domain {} of {}", domain, options.domain_node.size());
    }
  }
  if (options.max_micro_batches < 1) FailUsage("max_micro_batches is below 1");
  if (options.reduce_group < 1) FailUsage("reduce_group is below 1");
  if (!(options.clip_norm >= 0)) FailUsage("the clip norm must be 0 or more");
  if (options.clip_norm > 0 && options.policy != UpdatePolicy::kCommit) {
    FailUsage("clipping needs the commit policy: it must know all gradients before any update");
  }
  if (!(options.ema_decay >= 0 && options.ema_decay < 1)) {
    FailUsage("the EMA decay must be in [0, 1), not {}", options.ema_decay);
  }
  for (const ParameterSpec& parameter : options.parameters) {
    for (const IndexMap& map : parameter.forms) CheckMap(map, parameter.elements);
  }
  return options;
}

}  // namespace

GradientServer::Impl::Impl(ServerOptions server_options, StopFlag& stop_flag)
    : options(Checked(std::move(server_options))),
      stop(stop_flag),
      layout(options),
      kernels(KernelsAt(CurrentIsa())),
      update(kernels.update(options.optimizer)),
      lars(options.optimizer.kind == OptimizerKind::kLars),
      commit(options.policy == UpdatePolicy::kCommit) {
  const size_t bytes = control.Bind(layout, options.leaf_domain.size(), nullptr);
  control_arena = Arena(bytes, {.os_node = -1, .shared = true});
  control.Bind(layout, options.leaf_domain.size(), control_arena.data());
  AllocateValues();
  AllocateForms();
  AllocateLeaves();
  StartAt(0);
}

void GradientServer::Impl::AllocateValues() {
  const bool has_ema = options.ema_decay > 0;
  const size_t state_count = StateNames(options.optimizer).size();
  size_t floats = layout.floats * (1 + has_ema + state_count + layout.two_phases);
  for (const MomentSpec& moment : options.moments) floats += 2 * RoundUp(moment.channels, kLine);
  value_arena = Arena(std::max<size_t>(floats, 1) * sizeof(float), {.os_node = -1, .shared = true});
  float* at = reinterpret_cast<float*>(value_arena.data());
  const auto take = [&](size_t n) { return std::exchange(at, at + n); };
  masters = take(layout.floats);
  if (has_ema) emas = take(layout.floats);
  for (size_t i = 0; i < state_count; ++i) states.push_back(take(layout.floats));
  if (layout.two_phases) reduced = take(layout.floats);
  for (const MomentSpec& moment : options.moments) {
    running_mean.push_back(take(RoundUp(moment.channels, kLine)));
    running_variance.push_back(take(RoundUp(moment.channels, kLine)));
  }
}

void GradientServer::Impl::AllocateForms() {
  for (const ParameterSpec& parameter : options.parameters) {
    for (const IndexMap& map : parameter.forms) {
      if (!MasterIsForm(map, parameter.elements)) form_floats += RoundUp(map.copy_elements, kLine);
    }
  }
  for (const int node : options.domain_node) {
    Forms& domain = forms.emplace_back();
    domain.arena =
        Arena(std::max<size_t>(form_floats, 1) * sizeof(float), {.os_node = node, .shared = true});
    float* at = reinterpret_cast<float*>(domain.arena.data());
    for (size_t p = 0; p < options.parameters.size(); ++p) {
      const ParameterSpec& parameter = options.parameters[p];
      std::vector<float*>& of = domain.of.emplace_back();
      for (const IndexMap& map : parameter.forms) {
        of.push_back(MasterIsForm(map, parameter.elements)
                         ? masters + layout.parameters[p].offset
                         : std::exchange(at, at + RoundUp(map.copy_elements, kLine)));
      }
    }
  }
}

void GradientServer::Impl::AllocateLeaves() {
  const size_t counts = 2 * options.moments.size() * options.max_micro_batches;
  const size_t floats =
      layout.floats + kChunk + kTreeDepth * kBlock + RoundUp(2 * layout.moment_floats, kLine);
  for (const int domain : options.leaf_domain) {
    Leaf& leaf = leaves.emplace_back();
    leaf.owner = static_cast<uint32_t>(layout.owner[domain]);
    leaf.number = static_cast<int>(&leaf - leaves.data());
    leaf.arena = Arena(floats * sizeof(float) + counts * sizeof(double),
                       {.os_node = options.domain_node[domain], .shared = true});
    leaf.gradients = reinterpret_cast<float*>(leaf.arena.data());
    leaf.chunk = leaf.gradients + layout.floats;
    leaf.partial = leaf.chunk + kChunk;
    leaf.moments = leaf.partial + kTreeDepth * kBlock;
    leaf.counts = reinterpret_cast<double*>(leaf.gradients + floats);
    gradients.push_back(leaf.gradients);
  }
}

void GradientServer::Impl::StartAt(uint64_t iteration) {
  control.Reset(layout, leaves.size(), iteration);
  for (Leaf& leaf : leaves) leaf.iteration = iteration;
}

void GradientServer::Impl::WriteForms(const float* values) {
  for (size_t p = 0; p < layout.parameters.size(); ++p) {
    const ServerLayout::Parameter& parameter = layout.parameters[p];
    const std::vector<IndexMap>& maps = options.parameters[p].forms;
    for (const Forms& domain : forms) {
      for (size_t f = 0; f < maps.size(); ++f) {
        if (MasterIsForm(maps[f], parameter.elements)) continue;
        WriteForm(maps[f], values + parameter.offset, 0, parameter.elements, domain.of[p][f]);
      }
    }
  }
}

float* GradientServer::Impl::MomentSlot(int leaf, int moment, int micro, bool variance) {
  const size_t row = RoundUp(options.moments[moment].channels, kLine);
  const Leaf& self = leaves[leaf];
  return self.moments + self.iteration % 2 * layout.moment_floats + layout.moment_offset[moment] +
         (2 * micro + variance) * row;
}

GradientServer::GradientServer(ServerOptions options, StopFlag& stop)
    : impl_(std::make_unique<Impl>(std::move(options), stop)) {}
GradientServer::~GradientServer() = default;

int GradientServer::buckets() const { return impl_->layout.bucket_count(); }
int GradientServer::bucket_of(int parameter) const {
  return impl_->layout.parameters[parameter].bucket;
}

std::span<float> GradientServer::master(int parameter) {
  const ServerLayout::Parameter& p = impl_->layout.parameters[parameter];
  return {impl_->masters + p.offset, p.elements};
}
std::span<float> GradientServer::ema(int parameter) {
  const ServerLayout::Parameter& p = impl_->layout.parameters[parameter];
  if (impl_->emas == nullptr) return {};
  return {impl_->emas + p.offset, p.elements};
}
std::span<float> GradientServer::state(int parameter, int index) {
  const ServerLayout::Parameter& p = impl_->layout.parameters[parameter];
  return {impl_->states[index] + p.offset, p.elements};
}
std::span<float> GradientServer::running_mean(int moment) {
  const size_t channels = static_cast<size_t>(impl_->options.moments[moment].channels);
  return {impl_->running_mean[moment], channels};
}
std::span<float> GradientServer::running_variance(int moment) {
  const size_t channels = static_cast<size_t>(impl_->options.moments[moment].channels);
  return {impl_->running_variance[moment], channels};
}
const float* GradientServer::form(int domain, int parameter, int form) const {
  return impl_->forms[domain].of[parameter][form];
}
float* GradientServer::gradient(int leaf, int parameter) {
  return impl_->leaves[leaf].gradients + impl_->layout.parameters[parameter].offset;
}

void GradientServer::RefreshForms() { impl_->WriteForms(impl_->masters); }
void GradientServer::CountSlices(int leaf, uint64_t* cycles) {
  impl_->leaves[leaf].slice_cycles = cycles;
}
void GradientServer::StartAt(uint64_t iteration) { impl_->StartAt(iteration); }
void GradientServer::UseEma(bool use) {
  // Before the first update there is no average yet.
  const bool averaged = impl_->emas != nullptr && impl_->leaves[0].iteration > 0;
  impl_->WriteForms(use && averaged ? impl_->emas : impl_->masters);
}

}  // namespace parax
