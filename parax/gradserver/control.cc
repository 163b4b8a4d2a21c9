#include <memory>

#include "parax/gradserver/control_internal.h"

namespace parax {
namespace {

template <typename T>
T* Take(uintptr_t& at, size_t count) {
  static_assert(alignof(T) <= 64);
  T* const array = reinterpret_cast<T*>(at);
  at = RoundUp(at + count * sizeof(T), 64);
  return array;
}

template <typename T>
void Construct(T* array, size_t count) {
  for (size_t i = 0; i < count; ++i) std::construct_at(array + i);
}

void Construct(Counter* array, size_t count, uint64_t value) {
  for (size_t i = 0; i < count; ++i) {
    std::construct_at(array + i)->n.store(value, std::memory_order_release);
  }
}

}  // namespace

size_t Control::Bind(const ServerLayout& layout, size_t leaves, std::byte* base) {
  const size_t buckets = layout.buckets.size();
  const size_t tasks = layout.tasks.size();
  active_row = RoundUp(leaves, 32);
  work_row = RoundUp(tasks, 512) / 64;  // whole cache lines
  published_row = RoundUp(buckets, 8);
  uintptr_t at = reinterpret_cast<uintptr_t>(base);
  arrived = Take<Counter>(at, buckets);
  updated = Take<Sequence>(at, buckets);
  bucket = Take<BucketWords>(at, buckets);
  active = Take<uint16_t>(at, buckets * active_row);
  opened = Take<Counter>(at, tasks);
  done = Take<Counter>(at, tasks);
  ticket = Take<Counter>(at, tasks * layout.owners);
  work = Take<std::atomic<uint64_t>>(at, layout.owners * work_row);
  bell = Take<Bell>(at, layout.owners);
  static_assert(2 * sizeof(LeafWords) == 64);  // a line a leaf
  leaf = Take<LeafWords>(at, 2 * leaves);
  published = Take<std::atomic<uint64_t>>(at, leaves * published_row);
  reduced = Take<Counter>(at, 1);
  moments_arrived = Take<Counter>(at, 2);
  moments_done = Take<Sequence>(at, 1);
  record = Take<RecordWords>(at, kRecords);
  gradient_squares = Take<double>(at, layout.chunks.size());
  weight_squares = Take<double>(at, layout.chunks.size());
  local_rate = Take<double>(at, layout.parameters.size());
  return at - reinterpret_cast<uintptr_t>(base);
}

void Control::Reset(const ServerLayout& layout, size_t leaves, uint64_t iteration) {
  const size_t buckets = layout.buckets.size();
  Construct(arrived, buckets, iteration * leaves);
  Construct(updated, buckets);
  Construct(bucket, buckets);
  for (size_t b = 0; b < buckets; ++b) updated[b].Publish(iteration);
  Construct(opened, layout.tasks.size(), iteration);
  for (size_t k = 0; k < layout.tasks.size(); ++k) {
    Construct(done + k, 1, iteration * layout.tasks[k].slices);
    for (uint32_t o = 0; o < layout.owners; ++o) {
      Construct(ticket + k * layout.owners + o, 1, iteration * layout.tasks[k].shares[o].count);
    }
  }
  Construct(work, layout.owners * work_row);
  Construct(bell, layout.owners);
  Construct(leaf, 2 * leaves);
  for (size_t i = 0; i < leaves * published_row; ++i) {
    std::construct_at(published + i, iteration);
  }
  Construct(reduced, 1, iteration * buckets);
  const uint64_t next = iteration + 1;  // nothing of it is there yet
  Construct(moments_arrived + iteration % 2, 1, MomentArrivals(iteration, leaves));
  Construct(moments_arrived + next % 2, 1, MomentArrivals(next, leaves) - leaves);
  Construct(moments_done, 1);
  moments_done->Publish(iteration);
  Construct(record, kRecords);
}

}  // namespace parax
