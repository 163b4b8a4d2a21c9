#pragma once

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>

namespace parax {

// Many ring, some listen: a listener reads count(), looks for work, and when it found none waits
// until somebody has rung since. Works across processes when it lies in shared memory. Hot: Ring()
// makes a futex call only when somebody sleeps.
class alignas(64) Bell {
 public:
  uint32_t count() const { return count_.load(std::memory_order_seq_cst); }
  void Ring(int wake = INT_MAX);  // of those who sleep, at most so many
  // Returns when count() differs from `seen`, or after `most`, or now and then for no reason.
  void Wait(uint32_t seen, std::chrono::nanoseconds most);

 private:
  std::atomic<uint32_t> count_{0};
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace parax
