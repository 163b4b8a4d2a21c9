#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parax/base/core_loss.h"
#include "parax/base/cycles.h"
#include "parax/base/stop.h"

namespace parax {

enum class TraceKind : uint8_t { kOp, kBucketWait, kInputWait, kServerWork, kGateWait, kDecode };
inline constexpr size_t kTraceKinds = 6;

// What an instance did between two readings of Trace::Now().
struct TraceEvent {
  uint64_t begin = 0, end = 0;
  uint64_t iteration = 0;  // 0: evaluation
  uint16_t plan = 0;       // kOp, kGateWait: which of the trace's plans
  uint16_t index = 0;      // op (kGateWait: that waits), bucket or number of images (kDecode)
  TraceKind kind = TraceKind::kOp;
};

// Cycles of one thread, summed.
struct TraceSums {
  uint64_t whole = 0;                      // between its start of work and its end
  double lost = 0;                         // seconds of it in which the core ran others
  uint64_t slices = 0;                     // of the gradient server, wherever it ran them
  std::array<uint64_t, kTraceKinds> by{};  // TraceKind; waits hold the slices run meanwhile
};
struct OpSum {
  uint64_t cycles = 0, runs = 0;
};

// What one thread does, in memory taken at set-up: sums of all, and the newest events. One writer;
// others read only while the writer is at rest (after a join or an acquire of something that it
// released since).
class alignas(64) TraceTrack {
 public:
  TraceTrack(std::string name, size_t capacity) : name_(std::move(name)), events_(capacity) {}

  void Add(const TraceEvent& event) noexcept {
    if (!events_.empty()) events_[written_++ % events_.size()] = event;
  }
  void Sum(const TraceEvent& event) noexcept {
    const uint64_t cycles = event.end - event.begin;
    sums(event.iteration > 0).by[static_cast<size_t>(event.kind)] += cycles;
    if (event.kind != TraceKind::kOp) return;
    OpSum& op = ops_[first_op_[event.plan] + event.index];
    op.cycles += cycles;
    ++op.runs;
  }

  const std::string& name() const { return name_; }
  uint64_t overwritten() const { return written_ > events_.size() ? written_ - events_.size() : 0; }
  std::vector<TraceEvent> Events() const;  // oldest first
  TraceSums& sums(bool training) noexcept { return sums_[training]; }
  const TraceSums& sums(bool training) const { return sums_[training]; }
  const OpSum& op(size_t plan, size_t index) const { return ops_[first_op_[plan] + index]; }

 private:
  friend class Trace;
  void AddPlan(size_t ops);
  void ClearSums();

  std::string name_;
  std::vector<TraceEvent> events_;
  uint64_t written_ = 0;
  std::array<TraceSums, 2> sums_;  // of evaluation, of training
  std::vector<size_t> first_op_;   // of each plan, in ops_
  std::vector<OpSum> ops_;
};

// What is known of an op beside its times.
struct TraceOp {
  std::string name;            // "layer1.0.conv1 forward"
  std::string kind;            // "conv forward", "batch_norm backward", "reorder forward"
  std::string implementation;  // "brgconv:avx512_core"
  double flops = 0;
  double bytes = 0;  // least memory traffic
};
struct TracePlan {
  bool training = false;
  int64_t batch = 0;  // images
  std::vector<TraceOp> ops;
};

// What every instance of a run did, for people to look at. Setup code but for Now().
class Trace {
 public:
  // Bounds the file: some 1 MB a track.
  static constexpr size_t kEventsPerTrack = size_t{1} << 13;

  explicit Trace(size_t events_a_track = kEventsPerTrack)  // 0: sums alone
      : capacity_(events_a_track), cycles_(Now()), time_(Clock::now()) {}

  static uint64_t Now() noexcept { return ReadCycles(); }

  // The track's address stays. `name`: "instance 0 (core 3)".
  TraceTrack& AddTrack(std::string name);
  // Of a thread that is no instance's: the one of that name, made on first use.
  TraceTrack& Decoder(const std::string& name);
  void AddPlan(TracePlan plan);
  void ClearSums();                           // while all writers are at rest
  OpSum Total(size_t plan, size_t op) const;  // of all instances
  const std::vector<std::unique_ptr<TraceTrack>>& tracks() const { return tracks_; }  // instances'
  const std::vector<TracePlan>& plans() const { return plans_; }
  double SecondsPerCycle() const;  // measured since the trace was made

  // Chrome's trace event format: microseconds since the trace was made, a thread a track.
  std::string ToJson() const;

 private:
  size_t capacity_;
  uint64_t cycles_;  // at the same moment as time_
  Clock::time_point time_;
  std::vector<std::unique_ptr<TraceTrack>> tracks_, decoders_;
  std::vector<TracePlan> plans_;
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
  // What has been done since the last call: summed, and recorded if it took `least_cycles`.
  void Note(TraceEvent event, uint64_t least_cycles = kLeastCycles) noexcept {
    if (track_ == nullptr) return;
    event.begin = begin_;
    event.end = begin_ = Trace::Now();
    track_->Sum(event);
    if (event.end - event.begin >= least_cycles) track_->Add(event);
  }

 private:
  TraceTrack* track_;
  uint64_t begin_ = 0;
};

// Adds the time that it lives to a track's whole. For long ones: it opens a file.
class TraceSpan {
 public:
  TraceSpan(TraceTrack* track, bool training) noexcept
      : track_(track), training_(training), begin_(track != nullptr ? Trace::Now() : 0) {
    if (track_ != nullptr) loss_.Begin();
  }
  ~TraceSpan() {
    if (track_ == nullptr) return;
    TraceSums& sums = track_->sums(training_);
    sums.whole += Trace::Now() - begin_;
    sums.lost += loss_.Seconds();
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  TraceTrack* track_;
  bool training_;
  uint64_t begin_;
  CoreLoss loss_;
};

}  // namespace parax
