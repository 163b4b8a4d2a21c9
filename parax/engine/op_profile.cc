#include "parax/engine/op_profile.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "parax/engine/rehearsal_internal.h"

namespace parax {
namespace {

constexpr uint64_t kWarmUp = 2, kMost = 1000;  // iterations
constexpr uint64_t kLeast = 3;
constexpr double kMostJitter = 0.1;  // more comes from others on the machine

// Lets every op begin on all instances at once.
class Lockstep final : public OpHook {
 public:
  explicit Lockstep(int leaves) : leaves_(static_cast<uint64_t>(leaves)) {}
  Outcome Enter(int, uint64_t, int) noexcept override {
    const uint64_t all = (arrived_.fetch_add(1) / leaves_ + 1) * leaves_;
    for (WaitingTime waited; arrived_.load() < all;) {
      for (int i = 0; i < 100; ++i) _mm_pause();
      if (waited.Reaches(std::chrono::seconds(30))) return Outcome::kTimeout;
    }
    return Outcome::kOk;
  }

 private:
  const uint64_t leaves_;
  std::atomic<uint64_t> arrived_{0};
};

struct Measured {
  std::vector<double> ops;         // seconds a run
  double slices = 0, between = 0;  // an iteration; of an instance
  double jitter = 0;
};

// Mean over ops, by their time, of the deviation over the mean.
double Jitter(const std::vector<TraceEvent>& events, size_t ops, uint64_t first) {
  std::vector<double> runs(ops), sum(ops), squares(ops);
  for (const TraceEvent& event : events) {
    if (event.kind != TraceKind::kOp || event.plan != 0 || event.iteration < first) continue;
    const auto cycles = static_cast<double>(event.end - event.begin);
    ++runs[event.index];
    sum[event.index] += cycles;
    squares[event.index] += cycles * cycles;
  }
  double all = 0, deviations = 0;
  for (size_t i = 0; i < ops; ++i) {
    if (runs[i] < 2) continue;
    const double mean = sum[i] / runs[i];
    all += mean;
    deviations += std::sqrt(std::max(0.0, squares[i] / runs[i] - mean * mean));
  }
  return all > 0 ? std::min(kMostJitter, deviations / all) : 0;
}

Measured Measure(const Graph& graph, TrainerOptions options, double seconds) {
  const auto leaves = static_cast<int>(options.seats.size());
  Lockstep lockstep(leaves);
  options.hook = leaves > 1 ? &lockstep : nullptr;
  options.overlap = {};
  Rehearsal rehearsal(graph, std::move(options), Trace::kEventsPerTrack);
  const Trainer& trainer = rehearsal.trainer();
  Trace& trace = rehearsal.trace();
  const auto train = [&](uint64_t last, const std::function<bool()>& enough) {
    rehearsal.Train(
        last, [](const StepReport&) {}, enough);
  };
  train(kWarmUp, [] { return false; });
  trace.ClearSums();
  const Clock::time_point begin = Clock::now();
  train(kMost,
        [&] { return trainer.iteration() >= kWarmUp + kLeast && SecondsSince(begin) > seconds; });

  const double second = trace.SecondsPerCycle();
  const auto iterations = static_cast<double>(trainer.iteration() - kWarmUp);
  Measured measured;
  measured.ops = rehearsal.OpSeconds();
  double whole = 0, in_ops = 0, slices = 0;
  for (const auto& track : trace.tracks()) {
    const TraceSums& sums = std::as_const(*track).sums(true);
    whole += static_cast<double>(sums.whole);
    in_ops += static_cast<double>(sums.by[static_cast<size_t>(TraceKind::kOp)]);
    slices += static_cast<double>(sums.slices);
  }
  measured.slices = second * slices / iterations;
  measured.between = second * std::max(0.0, whole - in_ops - slices) / iterations / leaves;
  measured.jitter = Jitter(trace.tracks()[0]->Events(), measured.ops.size(), kWarmUp + 1);
  return measured;
}

}  // namespace

OpProfile MeasureOps(const Graph& graph, const TrainerOptions& options, double seconds) {
  TrainerOptions one = options;
  one.seats.resize(1);
  one.train.leaves = 1;
  one.train.batch = options.train.batch / static_cast<int64_t>(options.seats.size());
  const Measured alone = Measure(graph, one, seconds);
  OpProfile profile;
  profile.slices = {alone.slices, alone.slices};
  profile.between = alone.between / static_cast<double>(one.train.MicroBatches(0, 0));
  profile.jitter = alone.jitter;
  for (const double time : alone.ops) profile.ops.push_back({time, time});
  if (options.seats.size() == 1) return profile;
  const Measured together = Measure(graph, options, seconds);
  profile.slices.together = together.slices;
  for (size_t op = 0; op < profile.ops.size(); ++op) profile.ops[op].together = together.ops[op];
  return profile;
}

}  // namespace parax
