#pragma once

#include <cstdint>

#include "parax/data/sampler.h"

namespace parax {

// Walks one leaf's micro-batches in order, over the iterations first .. end - 1 (counted over all
// epochs), passing by the iterations in which the leaf has no share.
class LeafCursor {
 public:
  LeafCursor(const BatchPlan& plan, int leaf, int64_t first, int64_t end)
      : plan_(plan), leaf_(leaf), iteration_(first), end_(end) {
    // The first batch is a largest one: who gets nothing of it never gets anything.
    if (plan.IterationsPerEpoch() == 0 || plan.MicroBatches(0, leaf) == 0) iteration_ = end;
    Settle();
  }

  bool ended() const { return iteration_ >= end_; }
  int64_t iteration() const { return iteration_; }
  int micro() const { return micro_; }
  int64_t epoch() const { return iteration_ / plan_.IterationsPerEpoch(); }
  BatchPlan::Piece piece() const { return plan_.MicroBatch(InEpoch(), leaf_, micro_); }

  void Advance() {
    if (++micro_ < plan_.MicroBatches(InEpoch(), leaf_)) return;
    micro_ = 0;
    ++iteration_;
    Settle();
  }

 private:
  int64_t InEpoch() const { return iteration_ % plan_.IterationsPerEpoch(); }
  void Settle() {
    while (!ended() && plan_.MicroBatches(InEpoch(), leaf_) == 0) ++iteration_;
  }

  BatchPlan plan_;
  int leaf_;
  int64_t iteration_;
  int64_t end_;
  int micro_ = 0;
};

}  // namespace parax
