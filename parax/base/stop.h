#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "parax/base/outcome.h"

namespace parax {

using Clock = std::chrono::steady_clock;

inline double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// One a run: says that everybody should come to an end, and why. The first caller's reason stays.
// Request() and Fail() neither allocate nor lock: hot code and signal handlers may call them.
class StopFlag {
 public:
  bool stopped() const { return outcome_.load(std::memory_order_acquire) != Outcome::kOk; }
  int64_t index() const { return index_; }  // of the reason; valid once stopped()
  Outcome outcome() const { return outcome_.load(std::memory_order_acquire); }

  void Request() { Fail(Outcome::kStopped, "asked to stop", 0); }
  // `what` must be a string literal (it is kept by address); `index` tells which one of several.
  void Fail(Outcome outcome, const char* what, int64_t index);
  // One line: why it stopped. Setup code only.
  std::string Reason() const;

 private:
  std::atomic<bool> claimed_{false};
  std::atomic<Outcome> outcome_{Outcome::kOk};  // written last, by whoever claimed
  const char* what_ = "";
  int64_t index_ = 0;
};

// The time that a wait has taken. What a stopped process (Ctrl-Z, a suspended machine) sleeps
// through counts as a second at most: nobody else could work meanwhile.
class WaitingTime {
 public:
  bool Reaches(Clock::duration limit) {
    const Clock::time_point now = Clock::now();
    waited_ += std::min<Clock::duration>(now - looked_, std::chrono::seconds(1));
    looked_ = now;
    return waited_ >= limit;
  }

 private:
  Clock::time_point looked_ = Clock::now();
  Clock::duration waited_{0};
};

}  // namespace parax
