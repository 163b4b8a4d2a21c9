#pragma once

#include <filesystem>
#include <optional>

#include "parax/cli/session.h"
#include "parax/sched/profile.h"
#include "parax/sched/trace.h"

namespace parax {

// What --trace and --profile ask to be recorded of a run. At the set-up already the file of --trace
// is written, empty, and the peaks of --profile are measured, so that what cannot be done is an
// error (thrown by the constructor) before anything runs.
class Recording {
 public:
  Recording(const Options& options, const Machine& machine);
  Trace* trace() { return trace_ ? &*trace_ : nullptr; }        // null: neither was asked for
  const std::optional<Peaks>& peaks() const { return peaks_; }  // nullopt: no --profile
  // The rest once the instances are at rest.
  void ForgetWarmUp();                                    // the profile begins here
  void Write() const;                                     // --trace; throws Error
  std::optional<Profile> ProfileOf(bool training) const;  // nullopt: not asked for

 private:
  std::filesystem::path path_;
  std::optional<Trace> trace_;
  std::optional<Peaks> peaks_;
};

}  // namespace parax
