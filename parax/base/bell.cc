#include "parax/base/bell.h"

#include "parax/base/futex_internal.h"

namespace parax {

void Bell::Ring(int wake) {
  // Sequentially consistent, so that either we see the sleeper or it sees the new count.
  count_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) FutexWake(&count_, wake);
}

void Bell::Wait(uint32_t seen, std::chrono::nanoseconds most) {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  FutexWait(&count_, seen, most);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace parax
