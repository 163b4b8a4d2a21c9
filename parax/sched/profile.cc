#include "parax/sched/profile.h"

#include <algorithm>
#include <map>

namespace parax {
namespace {

void Add(ProfileRow& row, const ProfileRow& part) {
  row.runs += part.runs;
  row.seconds += part.seconds;
  row.flops += part.flops;
  row.bytes += part.bytes;
  row.least += part.least;
}

// Everything an op's runs came to, in all instances.
ProfileRow RowOf(const Trace& trace, size_t plan, size_t index, double scale, const Peaks& peaks) {
  const TraceOp& op = trace.plans()[plan].ops[index];
  ProfileRow row{.name = op.name, .kind = op.kind, .implementation = op.implementation};
  const OpSum total = trace.Total(plan, index);
  row.runs = total.runs;
  row.seconds = static_cast<double>(total.cycles) * scale;
  const double runs = static_cast<double>(row.runs);
  row.flops = op.flops * runs;
  row.bytes = op.bytes * runs;
  row.least = std::max(row.flops / peaks.flops, row.bytes / peaks.bandwidth);
  return row;
}

std::vector<ProfileRow> Rows(const std::map<std::string, ProfileRow>& rows) {
  std::vector<ProfileRow> list;
  for (const auto& [key, row] : rows) list.push_back(row);
  return list;
}

}  // namespace

Profile Summarise(const Trace& trace, bool training, const Peaks& peaks) {
  const double scale = trace.SecondsPerCycle();
  Profile profile{.training = training, .instances = trace.tracks().size(), .peaks = peaks};
  double by[kTraceKinds] = {};
  for (const auto& track : trace.tracks()) {
    const TraceSums& sums = track->sums(training);
    profile.whole += static_cast<double>(sums.whole) * scale;
    profile.lost += sums.lost;
    profile.reduction += static_cast<double>(sums.slices) * scale;
    for (size_t k = 0; k < kTraceKinds; ++k) by[k] += static_cast<double>(sums.by[k]) * scale;
  }
  const auto spent = [&](TraceKind kind) { return by[static_cast<size_t>(kind)]; };
  profile.compute = spent(TraceKind::kOp);
  profile.input_wait = spent(TraceKind::kInputWait);
  profile.gate_wait = spent(TraceKind::kGateWait);
  // Whoever waits for the server runs slices meanwhile.
  profile.server_wait = std::max(
      0.0, spent(TraceKind::kBucketWait) + spent(TraceKind::kServerWork) - profile.reduction);
  profile.other = profile.whole - profile.compute - profile.reduction - profile.server_wait -
                  profile.input_wait - profile.gate_wait;

  std::map<std::string, ProfileRow> kinds, ops;
  for (size_t p = 0; p < trace.plans().size(); ++p) {
    const TracePlan& plan = trace.plans()[p];
    if (plan.training != training) continue;
    for (size_t i = 0; i < plan.ops.size(); ++i) {
      const ProfileRow row = RowOf(trace, p, i, scale, peaks);
      if (row.runs == 0) continue;
      if (i == 0) profile.images += plan.batch * static_cast<int64_t>(row.runs);
      profile.flops += row.flops;
      ProfileRow& kind = kinds.try_emplace(row.kind, ProfileRow{.name = row.kind}).first->second;
      Add(kind, row);
      // Plans of several batch sizes hold the same ops; ops of one layer differ in what they run.
      const auto [op, fresh] =
          ops.try_emplace(row.name + '\n' + row.kind + '\n' + row.implementation, row);
      if (!fresh) Add(op->second, row);
    }
  }
  profile.kinds = Rows(kinds);
  profile.ops = Rows(ops);
  std::ranges::stable_sort(profile.kinds, std::greater(), &ProfileRow::seconds);
  std::ranges::stable_sort(profile.ops, std::greater(), &ProfileRow::excess);
  return profile;
}

}  // namespace parax
