#include "parax/sched/policy.h"

#include <algorithm>

#include "parax/base/text.h"

namespace parax {
namespace {

constexpr double kSaturated = 0.9;
// Of the bandwidth of a copy: more than it has alone comes from caches, and so little of its share
// does not keep memory busy.
constexpr double kFromCaches = 1.5, kIdle = 0.25;
constexpr double kMostLost = 0.05;  // what an idle system's own threads take is far below

}  // namespace

const std::vector<std::string>& SchedulePolicyNames() {
  static const std::vector<std::string> names = {"barriered", "free", "stagger", "gate",
                                                 "gate+defer"};
  return names;
}

SchedulePolicy ParseSchedulePolicy(std::string_view name) {
  return static_cast<SchedulePolicy>(
      ChoiceOf("schedule policy", name, SchedulePolicyNames(), "free"));
}

Phase PhaseOf(const OpCost& op, const SeatRates& seat) {
  if (op.bytes * seat.flops <= op.flops * seat.bytes) return Phase::kComputeBound;
  if (op.seconds > 0) {
    const double rate = op.bytes / op.seconds;
    if (rate > kFromCaches * seat.bytes_alone || rate < kIdle * seat.bytes) {
      return Phase::kComputeBound;
    }
  }
  return Phase::kAccessIntensive;
}

int GateLimit(const std::vector<double>& bandwidth) {
  if (bandwidth.empty()) return 1;
  const double most = *std::ranges::max_element(bandwidth);
  const auto enough =
      std::ranges::find_if(bandwidth, [&](double value) { return value >= kSaturated * most; });
  return static_cast<int>(enough - bandwidth.begin()) + 1;
}

int GatePlaces(SchedulePolicy policy, int limit, int instances) {
  const bool gates = policy == SchedulePolicy::kGate || policy == SchedulePolicy::kGateDefer;
  return gates && limit < instances ? std::max(1, limit) : 0;
}

Action Decide(SchedulePolicy policy, const GateState& gate, const NextOp& next) {
  if (policy != SchedulePolicy::kGate && policy != SchedulePolicy::kGateDefer) return Action::kRun;
  const bool defers = policy == SchedulePolicy::kGateDefer && gate.limit > 0;
  if (next.phase == Phase::kComputeBound) {
    return defers && next.deferrable && gate.open() ? Action::kDefer : Action::kRun;
  }
  if (gate.open()) return Action::kRun;
  return defers && next.deferred ? Action::kRunDeferred : Action::kWait;
}

bool Crowded(double lost) { return lost > kMostLost; }

int StaggerOp(int index, int instances, int ops) {
  return static_cast<int>(static_cast<int64_t>(ops) * index / instances);
}

}  // namespace parax
