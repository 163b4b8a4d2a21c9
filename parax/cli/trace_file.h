#pragma once

#include <filesystem>
#include <optional>

#include "parax/sched/trace.h"

namespace parax {

// The file of --trace. Written at the set-up already, empty, so that a path which cannot be written
// is an error (thrown by the constructor) before anything runs.
class TraceFile {
 public:
  explicit TraceFile(std::filesystem::path path);  // empty: no trace
  Trace* trace() { return trace_ ? &*trace_ : nullptr; }
  void Write() const;  // once the instances are at rest; throws Error

 private:
  std::filesystem::path path_;
  std::optional<Trace> trace_;
};

}  // namespace parax
