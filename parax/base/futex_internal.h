#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace parax {

// Not FUTEX_PRIVATE: the words may be shared with another process. `word` is 32 bits of an atomic.
inline void FutexWait(const void* word, uint32_t expected, std::chrono::nanoseconds most) {
  const timespec timeout{most.count() / 1'000'000'000, most.count() % 1'000'000'000};
  syscall(SYS_futex, word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

inline void FutexWake(const void* word, int most = INT_MAX) {
  syscall(SYS_futex, word, FUTEX_WAKE, most, nullptr, nullptr, 0);
}

}  // namespace parax
