#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parax/base/stop.h"

namespace parax {

enum class TraceKind : uint8_t { kOp, kBucketWait, kInputWait, kServerWork, kGateWait };

// What an instance did between two readings of Trace::Now().
struct TraceEvent {
  uint64_t begin = 0, end = 0;
  uint64_t iteration = 0;
  uint16_t plan = 0;   // kOp, kGateWait: which of the trace's plans
  uint16_t index = 0;  // op (kGateWait: that waits) or bucket; else 0
  TraceKind kind = TraceKind::kOp;
};

// The newest events of one thread, in memory taken at set-up. One writer; others read only while
// the writer is at rest (after a join or an acquire of something that it released since).
class alignas(64) TraceTrack {
 public:
  TraceTrack(std::string name, size_t capacity) : name_(std::move(name)), events_(capacity) {}

  void Add(const TraceEvent& event) noexcept { events_[written_++ % events_.size()] = event; }

  const std::string& name() const { return name_; }
  uint64_t overwritten() const { return written_ > events_.size() ? written_ - events_.size() : 0; }
  std::vector<TraceEvent> Events() const;  // oldest first

 private:
  std::string name_;
  std::vector<TraceEvent> events_;
  uint64_t written_ = 0;
};

// What is known of an op beside its times.
struct TraceOp {
  std::string name;            // "layer1.0.conv1 forward"
  std::string implementation;  // "brgconv:avx512_core"
  double flops = 0;
  double bytes = 0;  // least memory traffic
};

// What every instance of a run did, for people to look at. Setup code but for Now().
class Trace {
 public:
  // Bounds the file: some 1 MB a track.
  static constexpr size_t kEventsPerTrack = size_t{1} << 13;

  Trace() : cycles_(Now()), time_(Clock::now()) {}

  // Reads the time-stamp counter, which costs a fraction of a clock call. ToJson relates it to the
  // clock, so it must tick evenly (as on every x86-64 processor with AVX2 it does).
  static uint64_t Now() noexcept { return __builtin_ia32_rdtsc(); }

  // The track's address stays. `name`: "instance 0 (core 3)".
  TraceTrack& AddTrack(std::string name, size_t capacity = kEventsPerTrack);
  void AddPlan(std::vector<TraceOp> ops) { plans_.push_back(std::move(ops)); }
  const std::vector<std::unique_ptr<TraceTrack>>& tracks() const { return tracks_; }

  // Chrome's trace event format: microseconds since the trace was made, a thread a track.
  std::string ToJson() const;

 private:
  uint64_t cycles_;  // at the same moment as time_
  Clock::time_point time_;
  std::vector<std::unique_ptr<TraceTrack>> tracks_;
  std::vector<std::vector<TraceOp>> plans_;
};

// Reads the counter at the borders of what a thread does. Hot code; without a track it costs a
// branch.
class TraceTimer {
 public:
  static constexpr uint64_t kLeastCycles = 2000;  // about a microsecond

  explicit TraceTimer(TraceTrack* track) noexcept : track_(track) { Start(); }
  void Start() noexcept {
    if (track_ != nullptr) begin_ = Trace::Now();
  }
  // What has been done since the last call: recorded if it took `least_cycles`.
  void Note(TraceEvent event, uint64_t least_cycles = kLeastCycles) noexcept {
    if (track_ == nullptr) return;
    event.begin = begin_;
    event.end = begin_ = Trace::Now();
    if (event.end - event.begin >= least_cycles) track_->Add(event);
  }

 private:
  TraceTrack* track_;
  uint64_t begin_ = 0;
};

}  // namespace parax
