#pragma once

#include <chrono>

#include "parax/base/stop.h"

namespace parax {

// The time in which a thread could have run while its core ran others: other programs, or more
// threads of this one than there are cores. From /proc/thread-self/schedstat; 0 where the kernel
// does not tell. One thread makes all calls; hot code but for Begin().
class CoreLoss {
 public:
  explicit CoreLoss(std::chrono::nanoseconds period = std::chrono::nanoseconds(0))
      : period_(period) {}
  ~CoreLoss();
  CoreLoss(const CoreLoss&) = delete;
  CoreLoss& operator=(const CoreLoss&) = delete;

  void Begin();                                                  // for the calling thread
  double Seconds() const noexcept { return Waited() - began_; }  // lost since Begin
  // Lost between the last two looks, as a part (0 to 1) of the time between them; looks again when
  // `period` has passed.
  double Part() noexcept;

 private:
  double Waited() const noexcept;  // seconds, since the thread began; 0: not known

  std::chrono::nanoseconds period_;
  int file_ = -1;
  Clock::time_point looked_;
  double began_ = 0, waited_ = 0;  // Waited() then, and at the last look
  double part_ = 0;
};

}  // namespace parax
