#include "parax/data/bell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

namespace parax {
namespace {

long Futex(std::atomic<uint32_t>& word, int op, uint32_t value, const timespec* timeout) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), op, value, timeout, nullptr, 0);
}

}  // namespace

void Bell::Ring() {
  // Sequentially consistent, so that either we see the listener or it sees the new count.
  count_.fetch_add(1, std::memory_order_seq_cst);
  if (listening_.load(std::memory_order_seq_cst)) Futex(count_, FUTEX_WAKE, 1, nullptr);
}

void Bell::Wait(uint32_t seen, std::chrono::nanoseconds most) {
  listening_.store(true, std::memory_order_seq_cst);
  if (count() == seen) {
    const timespec timeout{most.count() / 1'000'000'000, most.count() % 1'000'000'000};
    Futex(count_, FUTEX_WAIT, seen, &timeout);
  }
  listening_.store(false, std::memory_order_seq_cst);
}

}  // namespace parax
