#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace parax {

// Many ring, one listens: the listener reads count(), looks for work, and when it found none waits
// until somebody has rung since. Ring() is hot: it makes a futex call only when the listener
// sleeps.
class alignas(64) Bell {
 public:
  uint32_t count() const { return count_.load(std::memory_order_seq_cst); }
  void Ring();
  // Returns when count() differs from `seen`, or after `most`, whichever comes first.
  void Wait(uint32_t seen, std::chrono::nanoseconds most);

 private:
  std::atomic<uint32_t> count_{0};
  std::atomic<bool> listening_{false};
};

}  // namespace parax
