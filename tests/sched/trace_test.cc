#include "parax/sched/trace.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

namespace parax {
namespace {

TEST(Trace, KeepsTheNewestEventsAndCountsTheOthers) {
  TraceTrack track("instance 0", 4);
  EXPECT_TRUE(track.Events().empty());
  for (uint64_t i = 1; i <= 6; ++i) track.Add({.begin = i, .end = i + 1, .iteration = i});
  const std::vector<TraceEvent> events = track.Events();
  ASSERT_EQ(events.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(events[i].iteration, i + 3);
  EXPECT_EQ(track.overwritten(), 2u);
}

TEST(Trace, WritesOpsWaitsAndServerWork) {
  Trace trace;
  trace.AddPlan({true,
                 8,
                 {{"conv1 forward", "conv forward", "brg\"conv", 2e9, 3e6},
                  {"bn1 forward", "batch_norm forward", "parax:bn", 0, 1e6}}});
  TraceTrack& first = trace.AddTrack("instance 0 (core 3)");
  TraceTrack& second = trace.AddTrack("instance 1 (core 4)");
  const uint64_t begin = Trace::Now();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const uint64_t end = Trace::Now();
  first.Add({begin, end, 7, 0, 0, TraceKind::kOp});
  first.Add({end, end, 7, 0, 2, TraceKind::kBucketWait});
  second.Add({begin, end, 8, 0, 1, TraceKind::kOp});
  second.Add({begin, end, 8, 0, 0, TraceKind::kInputWait});
  second.Add({begin, end, 8, 0, 0, TraceKind::kServerWork});

  const auto json = nlohmann::json::parse(trace.ToJson());
  const auto& events = json.at("traceEvents");
  ASSERT_EQ(events.size(), 7u);
  EXPECT_EQ(events[0]["args"]["name"], "instance 0 (core 3)");
  EXPECT_EQ(events[0]["args"]["overwritten_events"], 0);
  EXPECT_EQ(events[1]["name"], "conv1 forward");
  EXPECT_EQ(events[1]["args"]["implementation"], "brg\"conv");
  EXPECT_DOUBLE_EQ(events[1]["args"]["GFLOP"].get<double>(), 2);
  EXPECT_DOUBLE_EQ(events[1]["args"]["MB"].get<double>(), 3);
  EXPECT_EQ(events[1]["args"]["iteration"], 7);
  EXPECT_GE(events[1]["ts"].get<double>(), 0);
  EXPECT_GE(events[1]["dur"].get<double>(), 19e3);  // microseconds
  EXPECT_LT(events[1]["dur"].get<double>(), 5e6);
  EXPECT_EQ(events[2]["name"], "wait for bucket 2");
  EXPECT_EQ(events[4]["name"], "bn1 forward");
  EXPECT_EQ(events[4]["tid"], 1);
  EXPECT_EQ(events[5]["name"], "wait for input");
  EXPECT_EQ(events[6]["name"], "reduce and update");
}

}  // namespace
}  // namespace parax
