#pragma once

#include <cstdint>
#include <vector>

namespace parax {

// Which samples each leaf (instance) takes in each iteration: pure arithmetic, the same for
// everybody. A batch is cut into one contiguous share a leaf, in leaf order, sizes differing by at
// most one; a share is cut into micro-batches of `micro_batch` samples, the last one smaller when
// it must be.
struct BatchPlan {
  int64_t samples = 0;  // in the data set
  int64_t batch = 1;    // samples an iteration, over all leaves
  int leaves = 1;
  int64_t micro_batch = 1;  // most samples a leaf takes through at once
  bool drop_last = false;   // leave out an epoch's incomplete last batch

  struct Piece {
    int64_t first = 0;  // position in the epoch's order
    int64_t count = 0;
  };

  int64_t IterationsPerEpoch() const;
  int64_t BatchSize(int64_t iteration_in_epoch) const;  // smaller in the last one
  Piece Share(int64_t iteration_in_epoch, int leaf) const;
  int MicroBatches(int64_t iteration_in_epoch, int leaf) const;  // 0 when the share is empty
  Piece MicroBatch(int64_t iteration_in_epoch, int leaf, int micro) const;
};

// Every micro-batch size that a plan's iterations hold, largest first.
std::vector<int64_t> MicroBatchSizes(const BatchPlan& plan);

// A keyed permutation of 0 .. n-1 (Feistel network with cycle walking): the order of an epoch's
// samples, without a table. Same (n, seed, epoch): same order, whatever the threads.
class Permutation {
 public:
  Permutation(int64_t n, uint64_t seed, uint64_t epoch);
  int64_t operator()(int64_t position) const;  // 0 <= position < n

 private:
  int64_t n_;
  int half_bits_;
  uint32_t keys_[8];
};

}  // namespace parax
