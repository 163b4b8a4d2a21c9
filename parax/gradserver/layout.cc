#include <algorithm>

#include "parax/base/error.h"
#include "parax/gradserver/layout_internal.h"
#include "parax/gradserver/moments_internal.h"

namespace parax {
namespace {

// Memory a slice may move: 200 us at 10 GB/s.
constexpr size_t kSliceTraffic = 2'000'000;

size_t SliceElements(const ServerOptions& options) {
  const size_t streams = options.leaf_domain.size() + 6;  // gradients; weights, states, forms
  return std::min(options.slice_bytes, kSliceTraffic / streams) / sizeof(float);
}

void CutParameters(const ServerOptions& options, ServerLayout& layout) {
  size_t bytes = 0;  // of the bucket being filled
  for (const ParameterSpec& spec : options.parameters) {
    if (spec.elements == 0) Fail("parameter {} has no elements", spec.name);
    const size_t size = spec.elements * sizeof(float);
    if (layout.buckets.empty() || bytes + size > options.bucket_bytes) {
      const int first = static_cast<int>(layout.parameters.size());
      layout.buckets.push_back({.first_parameter = first});
      bytes = 0;
    }
    bytes += size;
    ServerLayout::Parameter parameter{.offset = layout.floats,
                                      .elements = spec.elements,
                                      .bucket = layout.bucket_count() - 1,
                                      .first_chunk = static_cast<uint32_t>(layout.chunks.size())};
    const uint32_t index = static_cast<uint32_t>(layout.parameters.size());
    for (size_t at = 0; at < spec.elements; at += kChunk) {
      const size_t count = std::min(kChunk, spec.elements - at);
      layout.chunks.push_back({index, static_cast<uint32_t>(count), at});
      ++parameter.chunks;
    }
    layout.parameters.push_back(parameter);
    layout.buckets.back().last_parameter = static_cast<int>(index) + 1;
    layout.floats += RoundUp(spec.elements, kLine);
  }
}

void CutBuckets(const ServerOptions& options, ServerLayout& layout) {
  const size_t most = SliceElements(options);
  for (ServerLayout::Bucket& bucket : layout.buckets) {
    bucket.first_slice = static_cast<uint32_t>(layout.slice_chunks.size());
    const ServerLayout::Parameter& last = layout.parameters[bucket.last_parameter - 1];
    size_t elements = 0;  // of the slice being filled; starts a new one when it would overflow
    for (uint32_t c = layout.parameters[bucket.first_parameter].first_chunk;
         c < last.first_chunk + last.chunks; ++c) {
      if (elements == 0 || elements + layout.chunks[c].count > most) {
        layout.slice_chunks.push_back(c);
        elements = 0;
      }
      elements += layout.chunks[c].count;
    }
    bucket.slices = static_cast<uint32_t>(layout.slice_chunks.size()) - bucket.first_slice;
  }
  layout.slice_chunks.push_back(static_cast<uint32_t>(layout.chunks.size()));
}

void CutMoments(const ServerOptions& options, ServerLayout& layout) {
  const size_t batches = options.leaf_domain.size() * options.max_micro_batches;
  const size_t bytes = 2 * sizeof(float) * batches;  // a channel
  const size_t blocks = options.slice_bytes / bytes / MomentPool::kChannels;
  const uint32_t most = static_cast<uint32_t>(std::max<size_t>(1, blocks) * MomentPool::kChannels);
  for (uint32_t m = 0; m < options.moments.size(); ++m) {
    const int64_t channels = options.moments[m].channels;
    if (channels <= 0) Fail("batch norm {} has {} channels", options.moments[m].name, channels);
    const uint32_t end = static_cast<uint32_t>(channels);
    layout.moment_offset.push_back(layout.moment_floats);
    layout.moment_floats += 2 * options.max_micro_batches * RoundUp(end, kLine);
    for (uint32_t c = 0; c < end; c += most) {
      layout.moment_slices.push_back({m, c, std::min(end, c + most)});
    }
  }
}

// Slices are owned by number, round robin over the domains that have leaves to run them.
void AddTask(ServerLayout& layout, TaskKind kind, int bucket, uint32_t first, uint32_t slices) {
  ServerLayout::Task task{.kind = kind, .bucket = bucket, .slices = slices, .shares = {}};
  for (uint32_t owner = 0; owner < layout.owners; ++owner) {
    const uint32_t skip = (owner + layout.owners - first % layout.owners) % layout.owners;
    const uint32_t count = skip < slices ? (slices - skip - 1) / layout.owners + 1 : 0;
    task.shares.push_back({first + skip, count});
  }
  layout.tasks.push_back(std::move(task));
}

}  // namespace

ServerLayout::ServerLayout(const ServerOptions& options)
    : two_phases(options.policy == UpdatePolicy::kCommit ||
                 options.optimizer.kind == OptimizerKind::kLars),
      owner(options.domain_node.size(), -1) {
  for (const int domain : options.leaf_domain) owner[domain] = 0;
  for (int& number : owner) {
    if (number == 0) number = static_cast<int>(owners++);
  }
  CutParameters(options, *this);
  CutBuckets(options, *this);
  CutMoments(options, *this);
  // What is needed earliest in the next forward pass comes first: the lowest layers, which have the
  // highest bucket numbers; updates before reductions; running statistics last.
  if (two_phases) {
    for (int b = bucket_count() - 1; b >= 0; --b) {
      AddTask(*this, TaskKind::kUpdate, b, buckets[b].first_slice, buckets[b].slices);
    }
  }
  for (int b = bucket_count() - 1; b >= 0; --b) {
    AddTask(*this, two_phases ? TaskKind::kReduce : TaskKind::kFused, b, buckets[b].first_slice,
            buckets[b].slices);
  }
  if (!moment_slices.empty()) {
    AddTask(*this, TaskKind::kMoments, 0, 0, static_cast<uint32_t>(moment_slices.size()));
  }
}

}  // namespace parax
