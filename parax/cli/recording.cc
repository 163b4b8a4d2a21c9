#include "parax/cli/recording.h"

#include "parax/base/file.h"
#include "parax/base/log.h"
#include "parax/base/text.h"
#include "parax/engine/peaks.h"

namespace parax {

Recording::Recording(const Options& options, const Machine& machine) : path_(options.trace) {
  if (!path_.empty() || options.profile) trace_.emplace(path_.empty() ? 0 : Trace::kEventsPerTrack);
  if (!path_.empty()) WriteFileAtomically(path_, trace_->ToJson());
  if (options.profile) peaks_ = MeasurePeaks(machine.plan.seats, machine.domain_nodes);
}

void Recording::ForgetWarmUp() {
  if (trace_) trace_->ClearSums();
}

void Recording::Write() const {
  if (path_.empty()) return;
  WriteFileAtomically(path_, trace_->ToJson());
  Info("trace in {}: open it in chrome://tracing or https://ui.perfetto.dev",
       Printable(path_.string()));
}

std::optional<Profile> Recording::ProfileOf(bool training) const {
  if (!peaks_) return std::nullopt;
  return Summarise(*trace_, training, *peaks_);
}

}  // namespace parax
