#include "parax/base/stop.h"

#include <fmt/core.h>

namespace parax {

void StopFlag::Fail(Outcome outcome, const char* what, int64_t index) {
  if (claimed_.exchange(true, std::memory_order_acq_rel)) return;
  what_ = what;
  index_ = index;
  outcome_.store(outcome, std::memory_order_release);
}

std::string StopFlag::Reason() const {
  const Outcome outcome = this->outcome();
  if (outcome == Outcome::kOk) return "not stopped";
  return fmt::format("{}: {} {}", Name(outcome), what_, index_);
}

}  // namespace parax
