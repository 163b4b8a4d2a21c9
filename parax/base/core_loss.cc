#include "parax/base/core_loss.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace parax {

CoreLoss::~CoreLoss() {
  if (file_ >= 0) close(file_);
}

void CoreLoss::Begin() {
  if (file_ >= 0) close(file_);
  file_ = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  looked_ = Clock::now();
  began_ = waited_ = Waited();
  part_ = 0;
}

double CoreLoss::Part() noexcept {
  const Clock::time_point now = Clock::now();
  const std::chrono::duration<double> passed = now - looked_;
  if (file_ < 0 || passed < period_ || passed.count() <= 0) return part_;
  const double waited = Waited();
  part_ = std::clamp((waited - waited_) / passed.count(), 0.0, 1.0);
  looked_ = now;
  waited_ = waited;
  return part_;
}

// The file holds nanoseconds on a core, nanoseconds runnable without one, and a count.
double CoreLoss::Waited() const noexcept {
  std::array<char, 96> text;
  const ssize_t bytes = pread(file_, text.data(), text.size(), 0);
  if (bytes <= 0) return 0;
  const char *const begin = text.data(), *const end = begin + bytes;
  const char* const second = std::find(begin, end, ' ');
  if (second == end) return 0;
  uint64_t nanoseconds = 0;
  std::from_chars(second + 1, end, nanoseconds);
  return static_cast<double>(nanoseconds) * 1e-9;
}

}  // namespace parax
