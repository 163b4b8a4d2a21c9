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
  last_ = Now();
  began_ = last_.waited;
  part_ = 0;
}

double CoreLoss::Part() noexcept {
  const Clock::time_point now = Clock::now();
  if (file_ < 0 || now - looked_ < period_) return part_;
  const Times times = Now();
  const double waited = times.waited - last_.waited;
  const double wanted = times.ran - last_.ran + waited;
  if (wanted > 0) part_ = std::clamp(waited / wanted, 0.0, 1.0);
  looked_ = now;
  last_ = times;
  return part_;
}

// The file holds nanoseconds on a core, nanoseconds runnable without one, and a count.
CoreLoss::Times CoreLoss::Now() const noexcept {
  std::array<char, 96> text;
  const ssize_t bytes = pread(file_, text.data(), text.size(), 0);
  if (bytes <= 0) return {};
  const char* const end = text.data() + bytes;
  uint64_t ran = 0, waited = 0;
  const auto first = std::from_chars(text.data(), end, ran);
  if (first.ptr == end) return {};
  std::from_chars(first.ptr + 1, end, waited);
  return {static_cast<double>(ran) * 1e-9, static_cast<double>(waited) * 1e-9};
}

}  // namespace parax
