#include <algorithm>
#include <cmath>
#include <cstring>

#include "parax/gradserver/moments_internal.h"
#include "parax/gradserver/reduction_internal.h"
#include "parax/gradserver/server_internal.h"

namespace parax {
namespace {

float EmaStep(double decay, uint64_t iteration) {
  const auto t = static_cast<double>(iteration);
  return static_cast<float>(1 - std::min(decay, (1 + t) / (10 + t)));
}

}  // namespace

void GradientServer::Impl::RunSlice(Leaf& leaf, const ServerLayout::Task& task, uint32_t slice,
                                    uint64_t iteration) {
  if (task.kind == TaskKind::kMoments) {
    RunMomentSlice(layout.moment_slices[slice], iteration);
  } else {
    RunGradientSlice(leaf, task, slice, iteration);
  }
}

void GradientServer::Impl::RunGradientSlice(Leaf& leaf, const ServerLayout::Task& task,
                                            uint32_t slice, uint64_t iteration) {
  const BucketWords& words = control.bucket[task.bucket];
  const std::span<const uint16_t> active(control.active + task.bucket * control.active_row,
                                         words.active);
  const double clip =
      commit ? control.record[iteration % Control::kRecords].clip.load(std::memory_order_acquire)
             : 1;
  Coefficients coefficients;
  uint32_t coefficients_of = UINT32_MAX;
  for (uint32_t i = layout.slice_chunks[slice]; i < layout.slice_chunks[slice + 1]; ++i) {
    const ServerLayout::Chunk& chunk = layout.chunks[i];
    const size_t offset = layout.chunk_offset(chunk);
    float* const mean = task.kind == TaskKind::kFused ? leaf.chunk : reduced + offset;
    if (task.kind != TaskKind::kUpdate) {
      SumLeaves(kernels, active, gradients.data(), options.reduce_group, offset, chunk.count,
                words.inverse_weight, mean, leaf.partial);
    }
    if (task.kind == TaskKind::kReduce) {
      control.gradient_squares[i] = kernels.square_sum(mean, chunk.count);
      if (lars) control.weight_squares[i] = kernels.square_sum(masters + offset, chunk.count);
      continue;
    }
    if (chunk.parameter != coefficients_of) {
      coefficients_of = chunk.parameter;
      coefficients = CoefficientsAt(options.optimizer, iteration, words.rate, clip,
                                    options.parameters[chunk.parameter].decay,
                                    lars ? control.local_rate[chunk.parameter] : 1);
    }
    UpdateChunk(chunk, mean, coefficients, iteration);
  }
}

void GradientServer::Impl::UpdateChunk(const ServerLayout::Chunk& chunk, const float* gradient,
                                       const Coefficients& c, uint64_t iteration) {
  const size_t offset = layout.chunk_offset(chunk);
  float* const w = masters + offset;
  const auto state = [&](size_t i) { return i < states.size() ? states[i] + offset : nullptr; };
  // The average starts from the initial weights.
  if (emas != nullptr && iteration == 1) std::memcpy(emas + offset, w, chunk.count * sizeof(float));
  update(w, state(0), state(1), gradient, chunk.count, c);
  if (emas != nullptr) {
    kernels.ema(emas + offset, w, EmaStep(options.ema_decay, iteration), chunk.count);
  }
  const std::vector<IndexMap>& maps = options.parameters[chunk.parameter].forms;
  for (const Forms& domain : forms) {
    for (size_t f = 0; f < maps.size(); ++f) {
      if (MasterIsForm(maps[f], options.parameters[chunk.parameter].elements)) continue;
      WriteForm(maps[f], w, chunk.within, chunk.count, domain.of[chunk.parameter][f]);
    }
  }
}

double GradientServer::Impl::Norm(const double* squares, int parameter) const {
  const ServerLayout::Parameter& p = layout.parameters[parameter];
  double sum = 0;
  for (uint32_t i = 0; i < p.chunks; ++i) sum += squares[p.first_chunk + i];
  return std::sqrt(sum);
}

void GradientServer::Impl::SetLocalRates(int first_parameter, int last_parameter, double clip) {
  for (int p = first_parameter; p < last_parameter; ++p) {
    control.local_rate[p] = options.parameters[p].decay
                                ? LarsLocalRate(options.optimizer, Norm(control.weight_squares, p),
                                                clip * Norm(control.gradient_squares, p))
                                : 1;
  }
}

void GradientServer::Impl::RunMomentSlice(const ServerLayout::MomentSlice& slice,
                                          uint64_t iteration) {
  const size_t row = RoundUp(options.moments[slice.moment].channels, kLine);
  const size_t start = iteration % 2 * layout.moment_floats + layout.moment_offset[slice.moment];
  for (size_t c = slice.first; c < slice.last; c += MomentPool::kChannels) {
    MomentPool pool(std::min(MomentPool::kChannels, slice.last - c));
    for (size_t l = 0; l < leaves.size(); ++l) {
      const Leaf& leaf = leaves[l];
      const int64_t batches = control.leaf[2 * l + iteration % 2].micro_batches;
      for (int64_t micro = 0; micro < batches; ++micro) {
        const float* const mean = leaf.moments + start + 2 * micro * row + c;
        pool.Pool(mean, mean + row, leaf.counts[CountIndex(iteration, slice.moment, micro)]);
      }
    }
    pool.Update(running_mean[slice.moment] + c, running_variance[slice.moment] + c,
                options.moments[slice.moment].momentum);
  }
}

}  // namespace parax
