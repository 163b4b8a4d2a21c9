#include <algorithm>
#include <set>

#include "parax/engine/plan.h"

namespace parax {
namespace {

// What an op reads or writes: buffers by the one whose memory they lie in, and gradients.
struct Touched {
  std::set<std::pair<Place, int>> reads, writes;
};

Touched TouchedBy(const Plan& plan, const PlanOp& op) {
  Touched touched;
  for (const PlanArgument& argument : op.arguments) {
    const int index =
        argument.place == Place::kArena ? Root(plan.buffers, argument.index) : argument.index;
    (argument.write ? touched.writes : touched.reads).emplace(argument.place, index);
  }
  return touched;
}

bool Meet(const std::set<std::pair<Place, int>>& a, const std::set<std::pair<Place, int>>& b) {
  return std::ranges::any_of(a, [&](const auto& x) { return b.contains(x); });
}

// For each weight gradient, the op that it must run before as its data wants it: one that writes
// what it reads, or touches what it writes; else the last. -1 for other ops.
std::vector<int> LatestPossible(const Plan& plan) {
  std::vector<Touched> touched;
  for (const PlanOp& op : plan.ops) touched.push_back(TouchedBy(plan, op));
  std::vector<int> latest(plan.ops.size(), -1);
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    if (plan.ops[i].kind != OpKind::kBackwardWeights) continue;
    size_t at = i + 1;
    while (at + 1 < plan.ops.size() && !Meet(touched[at].writes, touched[i].reads) &&
           !Meet(touched[at].writes, touched[i].writes) &&
           !Meet(touched[at].reads, touched[i].writes)) {
      ++at;
    }
    if (at < plan.ops.size()) latest[i] = static_cast<int>(at);
  }
  return latest;
}

}  // namespace

void PlanMemoryWithDeferral(Plan& plan, const std::vector<int>& pinned) {
  const std::vector<PlanBuffer> fresh = plan.buffers;
  PlanMemory(plan, pinned);
  if (plan.options.defer_memory <= 0) return;
  const double most = (1 + plan.options.defer_memory) * static_cast<double>(plan.arena_bytes);
  const std::vector<PlanBuffer> without = std::move(plan.buffers);
  const size_t bytes_without = plan.arena_bytes;
  plan.buffers = fresh;
  const std::vector<int> possible = LatestPossible(plan);
  // The same number of ops for all: so every weight gradient can wait, wherever in the network it
  // is. The longest that the memory allows.
  for (int wait = static_cast<int>(plan.ops.size()); wait > 1; wait = wait * 3 / 4) {
    for (size_t i = 0; i < plan.ops.size(); ++i) {
      const int next = static_cast<int>(i) + 1;
      const int latest = std::min(possible[i], static_cast<int>(i) + wait);
      plan.ops[i].latest = latest > next ? latest : -1;
    }
    plan.buffers = fresh;
    PlanMemory(plan, pinned);
    if (static_cast<double>(plan.arena_bytes) <= most) return;
  }
  for (PlanOp& op : plan.ops) op.latest = -1;
  plan.buffers = without;
  plan.arena_bytes = bytes_without;
}

}  // namespace parax
