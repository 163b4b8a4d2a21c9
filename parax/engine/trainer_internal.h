#pragma once

#include <array>

#include "parax/engine/trainer.h"

namespace parax {

// What one leaf's thread writes.
struct Trainer::Leaf {
  explicit Leaf(const Instance::Wiring& wiring) : track(wiring.track), instance(wiring) {}
  static constexpr uint64_t kRing = 16;  // results kept

  TraceTrack* track;
  Instance instance;
  std::array<LossResult, kRing> results;  // of iteration t at t % kRing
  Sequence finished;                      // iterations this leaf is through with
};

}  // namespace parax
