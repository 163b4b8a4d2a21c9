#pragma once

#include <atomic>
#include <cstdint>

#include "parax/base/outcome.h"
#include "parax/base/stop.h"

namespace parax {

// What a wait is for: named when it times out.
struct WaitName {
  const char* what;  // string literal
  int64_t index = 0;
};

// A monotonic 64-bit number with ONE writer and any number of readers, on a cache line of its own;
// works across processes when it lies in shared memory. Everything the writer wrote before
// Publish(n) is visible to whoever saw a value >= n.
class alignas(64) Sequence {
 public:
  uint64_t value() const { return value_.load(std::memory_order_acquire); }
  bool reached(uint64_t n) const { return value() >= n; }

  void Publish(uint64_t n);  // n >= value(); wakes whoever sleeps

  // Spins briefly, then sleeps on a futex until value() >= n. kTimeout after `timeout` (and then
  // `stop` carries the wait's name), kStopped when `stop` is set.
  Outcome Wait(uint64_t n, StopFlag& stop, Clock::duration timeout, WaitName name) const;

 private:
  std::atomic<uint64_t> value_{0};
  mutable std::atomic<uint32_t> sleepers_{0};
};
static_assert(sizeof(Sequence) == 64);

}  // namespace parax
