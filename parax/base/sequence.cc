#include "parax/base/sequence.h"

#include <immintrin.h>

#include <bit>

#include "parax/base/futex_internal.h"

namespace parax {
namespace {

// The futex word is the low half of the value: it changes whenever the value does, unless the value
// jumps by a multiple of 2^32, which the sleep's own timeout covers.
const void* FutexWord(const std::atomic<uint64_t>& value) {
  static_assert(std::endian::native == std::endian::little);
  return &value;
}

constexpr int kSpins = 200;
constexpr std::chrono::milliseconds kSleep{20};  // between looks at the stop flag and the deadline

}  // namespace

void Sequence::Publish(uint64_t n) {
  // Sequentially consistent, so that either we see the sleeper or it sees the new value.
  value_.store(n, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) {
    FutexWake(FutexWord(value_));
  }
}

Outcome Sequence::Wait(uint64_t n, StopFlag& stop, Clock::duration timeout, WaitName name) const {
  for (int i = 0; i < kSpins; ++i) {
    if (reached(n)) return Outcome::kOk;
    _mm_pause();
  }
  WaitingTime waited;
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  Outcome outcome = Outcome::kOk;
  for (;;) {
    const uint64_t seen = value_.load(std::memory_order_seq_cst);
    if (seen >= n) break;
    if (stop.stopped()) {
      outcome = Outcome::kStopped;
      break;
    }
    if (waited.Reaches(timeout)) {
      stop.Fail(Outcome::kTimeout, name.what, name.index);
      outcome = Outcome::kTimeout;
      break;
    }
    FutexWait(FutexWord(value_), static_cast<uint32_t>(seen), kSleep);
  }
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  return outcome;
}

}  // namespace parax
