#include "parax/base/sequence.h"

#include <immintrin.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <climits>
#include <ctime>

namespace parax {
namespace {

// The futex word is the low half of the value: it changes whenever the value does, unless the value
// jumps by a multiple of 2^32, which the sleep's own timeout covers.
uint32_t* FutexWord(const std::atomic<uint64_t>& value) {
  static_assert(std::endian::native == std::endian::little);
  return reinterpret_cast<uint32_t*>(const_cast<std::atomic<uint64_t>*>(&value));
}

// Not FUTEX_PRIVATE: the word may be shared with another process.
void FutexWait(const std::atomic<uint64_t>& value, uint32_t expected, int64_t nanoseconds) {
  const timespec timeout{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  syscall(SYS_futex, FutexWord(value), FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

constexpr int kSpins = 200;
constexpr int64_t kSleepNanoseconds =
    20'000'000;  // between looks at the stop flag and the deadline

}  // namespace

void Sequence::Publish(uint64_t n) {
  // Sequentially consistent, so that either we see the sleeper or it sees the new value.
  value_.store(n, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) {
    syscall(SYS_futex, FutexWord(value_), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

Outcome Sequence::Wait(uint64_t n, StopFlag& stop, Clock::duration timeout, WaitName name) const {
  for (int i = 0; i < kSpins; ++i) {
    if (reached(n)) return Outcome::kOk;
    _mm_pause();
  }
  const Clock::time_point deadline = Clock::now() + timeout;
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  Outcome outcome = Outcome::kOk;
  for (;;) {
    const uint64_t seen = value_.load(std::memory_order_seq_cst);
    if (seen >= n) break;
    if (stop.stopped()) {
      outcome = Outcome::kStopped;
      break;
    }
    if (Clock::now() >= deadline) {
      stop.Fail(Outcome::kTimeout, name.what, name.index);
      outcome = Outcome::kTimeout;
      break;
    }
    FutexWait(value_, static_cast<uint32_t>(seen), kSleepNanoseconds);
  }
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  return outcome;
}

}  // namespace parax
