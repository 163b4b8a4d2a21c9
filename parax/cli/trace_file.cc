#include "parax/cli/trace_file.h"

#include <utility>

#include "parax/base/file.h"
#include "parax/base/log.h"
#include "parax/base/text.h"

namespace parax {

TraceFile::TraceFile(std::filesystem::path path) : path_(std::move(path)) {
  if (path_.empty()) return;
  trace_.emplace();
  WriteFileAtomically(path_, trace_->ToJson());
}

void TraceFile::Write() const {
  if (!trace_) return;
  WriteFileAtomically(path_, trace_->ToJson());
  Info("trace in {}: open it in chrome://tracing or https://ui.perfetto.dev",
       Printable(path_.string()));
}

}  // namespace parax
