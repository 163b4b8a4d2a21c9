#include "parax/data/sampler.h"

#include <algorithm>
#include <bit>
#include <set>

#include "parax/base/philox.h"

namespace parax {

int64_t BatchPlan::IterationsPerEpoch() const {
  return drop_last ? samples / batch : (samples + batch - 1) / batch;
}

int64_t BatchPlan::BatchSize(int64_t iteration_in_epoch) const {
  return std::clamp<int64_t>(samples - iteration_in_epoch * batch, 0, batch);
}

BatchPlan::Piece BatchPlan::Share(int64_t iteration_in_epoch, int leaf) const {
  const int64_t size = BatchSize(iteration_in_epoch);
  const int64_t least = size / leaves;
  const int64_t larger = size % leaves;  // the first `larger` leaves take one sample more
  return {iteration_in_epoch * batch + leaf * least + std::min<int64_t>(leaf, larger),
          least + (leaf < larger ? 1 : 0)};
}

int BatchPlan::MicroBatches(int64_t iteration_in_epoch, int leaf) const {
  const int64_t count = Share(iteration_in_epoch, leaf).count;
  return static_cast<int>((count + micro_batch - 1) / micro_batch);
}

BatchPlan::Piece BatchPlan::MicroBatch(int64_t iteration_in_epoch, int leaf, int micro) const {
  const Piece share = Share(iteration_in_epoch, leaf);
  const int64_t skipped = micro * micro_batch;
  return {share.first + skipped, std::clamp<int64_t>(share.count - skipped, 0, micro_batch)};
}

std::vector<int64_t> MicroBatchSizes(const BatchPlan& plan) {
  std::set<int64_t, std::greater<>> sizes;
  const int64_t iterations = plan.IterationsPerEpoch();
  for (const int64_t it : {int64_t{0}, iterations - 1}) {
    for (int leaf = 0; it >= 0 && leaf < plan.leaves; ++leaf) {
      for (int m = 0; m < plan.MicroBatches(it, leaf); ++m) {
        sizes.insert(plan.MicroBatch(it, leaf, m).count);
      }
    }
  }
  return {sizes.begin(), sizes.end()};
}

Permutation::Permutation(int64_t n, uint64_t seed, uint64_t epoch) : n_(n) {
  // Two halves of h bits: the least 4^h >= n, so fewer than four walks are expected.
  half_bits_ = static_cast<int>(std::bit_width(static_cast<uint64_t>(n > 1 ? n - 1 : 1)) + 1) / 2;
  RandomStream random(seed, RandomUse::kShuffle, epoch);
  for (uint32_t& key : keys_) key = random.Next();
}

int64_t Permutation::operator()(int64_t position) const {
  const uint32_t mask = static_cast<uint32_t>((uint64_t{1} << half_bits_) - 1);
  uint64_t x = static_cast<uint64_t>(position);
  do {
    uint32_t left = static_cast<uint32_t>(x >> half_bits_);
    uint32_t right = static_cast<uint32_t>(x) & mask;
    for (uint32_t key : keys_) {
      uint32_t f = right ^ key;  // MurmurHash3's finalizer as the round function
      f = (f ^ f >> 16) * 0x85ebca6bu;
      f = (f ^ f >> 13) * 0xc2b2ae35u;
      f = (f ^ f >> 16) + key;
      const uint32_t next = left ^ (f & mask);
      left = right;
      right = next;
    }
    x = uint64_t{left} << half_bits_ | right;
  } while (x >= static_cast<uint64_t>(n_));  // ends: the network permutes 0 .. 4^h - 1
  return static_cast<int64_t>(x);
}

}  // namespace parax
