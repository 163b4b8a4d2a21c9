// Tuning: what it chooses is what a trainer then runs, and comes from within whole steps.
#include "parax/engine/tune.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "parax/engine/tune_layers_internal.h"
#include "parax/engine/tune_steps_internal.h"
#include "parax/models/resnet.h"
#include "tests/training/training_harness.h"

namespace parax::test {
namespace {

struct Case {
  Graph graph = BuildModel({.name = "resnet20", .classes = 10, .image_size = 16});
  TrainerOptions options = GradientOptions(1, 8, 8, 1, 10);
};

TEST(TuneTest, WhatIsChosenIsWhatRuns) {
  Case setup;
  for (const bool blocked : {false, true}) {
    TuneOptions tune;
    tune.nhwc = !blocked;
    tune.blocked = blocked;
    std::vector<std::string> told;
    tune.progress = [&](const std::string& what) { told.push_back(what); };
    const TuneResult result = Tune(setup.graph, setup.options, tune);
    ASSERT_FALSE(result.ops.empty());
    EXPECT_EQ(told.front(), fmt::format("layer 1 of {}", setup.graph.nodes().size()));
    EXPECT_TRUE(std::ranges::any_of(
        told, [](const std::string& what) { return what.starts_with("steps of plan 1"); }));
    EXPECT_EQ(told.back(), "");
    for (const TunedOp& op : result.ops) {
      EXPECT_GT(op.seconds, 0) << op.layer;
      EXPECT_NE(op.implementation, op.runner_up) << op.layer;
    }
    UseTuned(result.plan, setup.options);
    const Trainer trainer(setup.graph, setup.options);
    const Implementations& runs = trainer.plans()[0]->implementations;
    std::map<std::string, size_t> op_of;
    for (const TunedOp& op : result.ops) {
      EXPECT_EQ(runs.at(op.layer).at(op_of[op.layer]++), op.implementation) << op.layer;
    }
  }
}

// The one contender that is made out to be fast is taken, in all layers of its kind and no other.
TEST(TuneTest, StepsDecideBetweenContenders) {
  Case setup;
  TuneCache cache("");
  LayerTuner tuner(setup.graph, setup.options, {}, cache);
  TunedPlan plan;
  plan.kind = "nhwc";
  std::vector<ContendingLayer> layers = tuner.Contenders(plan);
  ASSERT_EQ(layers.size(), setup.graph.nodes().size());
  StepTimes times = TimeSteps(setup.graph, setup.options, plan);
  EXPECT_LT(times.seconds, 60);
  int others = 0;
  for (size_t n = 0; n < layers.size(); ++n) {
    ASSERT_EQ(times.ops[n].size(), layers[n].ops.size()) << setup.graph.label(static_cast<int>(n));
    for (size_t op = 0; op < layers[n].ops.size(); ++op) {
      EXPECT_GT(times.ops[n][op], 0);
      const bool other = layers[n].ops[op].contenders.size() > 1;
      times.ops[n][op] = other ? 100 : times.ops[n][op];  // seconds of the plan's own
      others += other ? 1 : 0;
    }
  }
  ASSERT_GT(others, 0);
  const TuneResult result =
      Refine(setup.graph, setup.options, plan, times, layers, {[](const std::string&) {}, {}});
  EXPECT_EQ(result.plan.kind, "nhwc, tuned");
  for (size_t n = 0; n < layers.size(); ++n) {
    for (size_t op = 0; op < layers[n].ops.size(); ++op) {
      const auto& contenders = layers[n].ops[op].contenders;
      const std::string& taken =
          result.plan.implementations.at(setup.graph.label(static_cast<int>(n)))[op];
      EXPECT_EQ(taken == contenders[0].implementation, contenders.size() == 1) << n << " " << op;
    }
  }
}

}  // namespace
}  // namespace parax::test
