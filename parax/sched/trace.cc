#include "parax/sched/trace.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace parax {
namespace {

using Json = nlohmann::ordered_json;

// Name, category and what is known of an event beside its times.
Json Describe(const std::vector<TracePlan>& plans, const TraceEvent& event) {
  Json args = {{"iteration", event.iteration}};
  std::string name;
  switch (event.kind) {
    case TraceKind::kOp: {
      const TraceOp& op = plans.at(event.plan).ops.at(event.index);
      name = op.name;
      args["kind"] = op.kind;
      args["implementation"] = op.implementation;
      args["GFLOP"] = op.flops / 1e9;
      args["MB"] = op.bytes / 1e6;
      break;
    }
    case TraceKind::kBucketWait:
      name = fmt::format("wait for bucket {}", event.index);
      break;
    case TraceKind::kInputWait:
      name = "wait for input";
      break;
    case TraceKind::kServerWork:
      name = "reduce and update";
      break;
    case TraceKind::kGateWait:
      name = "wait at the gate";
      break;
    case TraceKind::kDecode:
      name = "decode";
      args["images"] = event.index;
      break;
  }
  static constexpr const char* kCategories[] = {"op", "wait", "wait", "server", "wait", "decode"};
  return {{"name", name}, {"cat", kCategories[static_cast<size_t>(event.kind)]}, {"args", args}};
}

}  // namespace

std::vector<TraceEvent> TraceTrack::Events() const {
  const uint64_t kept = std::min<uint64_t>(written_, events_.size());
  std::vector<TraceEvent> events;
  events.reserve(kept);
  for (uint64_t i = written_ - kept; i < written_; ++i) {
    events.push_back(events_[i % events_.size()]);
  }
  return events;
}

void TraceTrack::AddPlan(size_t ops) {
  first_op_.push_back(ops_.size());
  ops_.resize(ops_.size() + ops);
}

void TraceTrack::ClearSums() {
  sums_ = {};
  std::ranges::fill(ops_, OpSum());
}

TraceTrack& Trace::AddTrack(std::string name) {
  TraceTrack& track =
      *tracks_.emplace_back(std::make_unique<TraceTrack>(std::move(name), capacity_));
  for (const TracePlan& plan : plans_) track.AddPlan(plan.ops.size());
  return track;
}

void Trace::AddPlan(TracePlan plan) {
  for (const auto& track : tracks_) track->AddPlan(plan.ops.size());
  plans_.push_back(std::move(plan));
}

void Trace::ClearSums() {
  for (const auto& track : tracks_) track->ClearSums();
}

OpSum Trace::Total(size_t plan, size_t op) const {
  OpSum total;
  for (const auto& track : tracks_) {
    total.cycles += track->op(plan, op).cycles;
    total.runs += track->op(plan, op).runs;
  }
  return total;
}

double Trace::SecondsPerCycle() const {
  const double seconds = SecondsSince(time_);
  return seconds / static_cast<double>(std::max<uint64_t>(Now() - cycles_, 1));
}

TraceTrack& Trace::Decoder(const std::string& name) {
  const auto known = std::ranges::find(decoders_, name, [](const auto& t) { return t->name(); });
  if (known != decoders_.end()) return **known;
  return *decoders_.emplace_back(std::make_unique<TraceTrack>(name, capacity_));
}

std::string Trace::ToJson() const {
  const double scale = 1e6 * SecondsPerCycle();
  // Cores' counters may differ by a little: an event may seem to begin before the trace did.
  const auto us = [&](uint64_t cycles) {
    return static_cast<double>(static_cast<int64_t>(cycles - cycles_)) * scale;
  };
  // Line by line: a tree of all events would take several times their text.
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  const char* separator = "\n";
  const auto add = [&](const Json& json) {
    out += separator;
    out += json.dump(-1, ' ', false, Json::error_handler_t::replace);
    separator = ",\n";
  };
  size_t thread = 0;
  for (const auto* tracks : {&tracks_, &decoders_}) {
    for (const auto& track : *tracks) {
      const size_t tid = thread++;
      add({{"ph", "M"},
           {"pid", 0},
           {"tid", tid},
           {"name", "thread_name"},
           {"args", {{"name", track->name()}, {"overwritten_events", track->overwritten()}}}});
      for (const TraceEvent& event : track->Events()) {
        Json json = {{"ph", "X"},
                     {"pid", 0},
                     {"tid", tid},
                     {"ts", us(event.begin)},
                     {"dur", us(event.end) - us(event.begin)}};
        json.update(Describe(plans_, event));
        add(json);
      }
    }
  }
  return out + "\n]}\n";
}

}  // namespace parax
