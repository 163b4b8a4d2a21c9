#include "parax/engine/sim_model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "parax/models/resnet.h"
#include "tests/training/training_harness.h"

namespace parax::test {
namespace {

constexpr int kInstances = 2;

MachineModel Here() {
  return {.name = "here",
          .sockets = 1,
          .domains = 1,
          .cores_per_domain = kInstances,
          .core_flops = 100e9,
          .bandwidth = {20e9, 30e9},
          .remote_factor = 1,
          .cache_per_core = 4e6};
}

// Two micro-batches a step. What ops take is replaced where a test wants to know it.
const MeasuredNetwork& Measured() {
  static const MeasuredNetwork measured = [] {
    const Graph graph = BuildModel({.name = "resnet20", .classes = 10, .image_size = 16});
    MeasuredNetwork network =
        MeasureNetwork(graph, GradientOptions(kInstances, 64, 8, 2, 10), Here(), 0.5, 0.01);
    network.profile.jitter = 0;
    return network;
  }();
  return measured;
}

double SumOfTimes(const MeasuredNetwork& network) {
  double pass = network.profile.between;
  for (const BusyTimes& op : network.profile.ops) pass += op.alone;
  return 2 * pass + network.profile.slices.alone;
}

TEST(MeasureOps, MeasuresEveryOp) {
  const OpProfile& profile = Measured().profile;
  ASSERT_EQ(profile.ops.size(), Measured().plan.ops.size());
  for (const BusyTimes& op : profile.ops) {
    EXPECT_GT(op.alone, 0);
    EXPECT_GT(op.together, 0);
  }
  EXPECT_GT(profile.slices.alone, 0);
  EXPECT_GT(profile.slices.together, 0);
  EXPECT_GT(profile.between, 0);
  EXPECT_TRUE(
      std::ranges::any_of(Measured().plan.ops, [](const PlanOp& op) { return op.latest >= 0; }));
}

TEST(SetupFor, OneInstanceHereTakesWhatWasMeasured) {
  const SimSetup setup = SetupFor(Measured(), Here(), {.instances = 1});
  EXPECT_NEAR(Simulate(setup).seconds, SumOfTimes(Measured()), 1e-6 * SumOfTimes(Measured()));
}

// Every op on both seats at once takes what it took in lockstep.
TEST(SetupFor, ExplainsTheTimesInLockstep) {
  MeasuredNetwork network = Measured();
  for (size_t i = 0; i < network.profile.ops.size(); ++i) {
    network.profile.ops[i].together = network.profile.ops[i].alone * (1 + 0.2 * double(i % 5));
  }
  const SimSetup setup = SetupFor(network, Here(), {.instances = 2});
  for (size_t i = 0; i < network.profile.ops.size(); ++i) {
    const SimWork& work = setup.ops[i + 1].work;
    const double seconds = std::max(work.crowded_seconds, work.bytes / 15e9);
    EXPECT_NEAR(seconds, network.profile.ops[i].together, 1e-6 * seconds) << i;
    EXPECT_LE(work.bytes, network.plan.ops[i].bytes);
  }
}

TEST(SetupFor, ScalesWithCoresAndBandwidth) {
  MachineModel target = Here();
  target.core_flops *= 2;
  for (double& value : target.bandwidth) value *= 1000;
  const double fast = Simulate(SetupFor(Measured(), target, {.instances = 1})).seconds;
  EXPECT_NEAR(fast, SumOfTimes(Measured()) / 2, 1e-6 * fast);
  double before = fast;
  for (double factor = 1; factor > 1e-3; factor /= 8) {
    MachineModel slow = target;
    for (double& value : slow.bandwidth) value *= factor / 1000;
    const double seconds = Simulate(SetupFor(Measured(), slow, {.instances = 1})).seconds;
    EXPECT_GE(seconds, before * (1 - 1e-9));
    before = seconds;
  }
  EXPECT_GT(before, 2 * fast);
}

TEST(SetupFor, SmallerCachesLeaveMoreToMemory) {
  MachineModel target = Here();
  target.cache_per_core = 0.5e6;
  MeasuredNetwork network = Measured();
  for (size_t i = 0; i < network.plan.ops.size(); ++i) {  // half of it from caches
    const double seconds = network.plan.ops[i].bytes / 40e9;
    network.profile.ops[i] = {seconds, 2 * seconds};
  }
  const auto bytes = [&](const MachineModel& machine) {
    double sum = 0;
    for (const SimOp& op : SetupFor(network, machine, {.instances = 1}).ops) {
      sum += op.work.bytes;
    }
    return sum;
  };
  double least = 0;
  for (const PlanOp& op : Measured().plan.ops) least += op.bytes;
  EXPECT_NEAR(bytes(Here()), 0.5 * least, 1e-6 * least);
  EXPECT_NEAR(bytes(target), (0.5 + 0.5 * 7 / 8) * least, 1e-6 * least);
  target.cache_per_core = 1;
  EXPECT_NEAR(bytes(target), least, 1e-5 * least);
}

TEST(SetupFor, ThreadsSpeedOpsUpByTheirSerialParts) {
  MeasuredNetwork one = Measured(), two = Measured();
  two.options.seats.resize(1);
  two.options.seats[0].pus.assign(2, 0);
  const auto serial = [&](size_t op) { return one.plan.ops[op].layer == "conv" ? 0.25 : 0.0; };
  for (size_t i = 0; i < one.plan.ops.size(); ++i) {
    one.plan.ops[i].bytes = 0;
    one.profile.ops[i].together = one.profile.ops[i].alone;
    // Twice the images on two threads.
    two.profile.ops[i].together = one.profile.ops[i].alone * (1 + serial(i));
  }
  one.serial = FindSerialParts(one, two);
  for (size_t i = 0; i < one.serial.ops.size(); ++i) {
    EXPECT_NEAR(one.serial.ops[i], serial(i), 1e-9);
  }
  MachineModel target = Here();
  target.cores_per_domain = 4;
  target.bandwidth = {1e12, 1e12, 1e12, 1e12};
  const SimSetup setup = SetupFor(one, target, {.instances = 1, .cores_per_instance = 4});
  for (size_t i = 0; i < one.serial.ops.size(); ++i) {
    const double factor = serial(i) * 4 + 1 - serial(i);  // four times the images
    EXPECT_NEAR(setup.ops[i + 1].work.seconds, factor * one.profile.ops[i].alone, 1e-12);
    EXPECT_EQ(setup.ops[i + 1].work.cores, 4);
  }
}

TEST(SetupFor, ServesTwoDomainsFromBoth) {
  MachineModel target = Here();
  target.domains = 2;
  const SimSetup near = SetupFor(Measured(), target, {.instances = 4});
  target.remote_factor = 3;
  const SimSetup far = SetupFor(Measured(), target, {.instances = 4});
  EXPECT_EQ(near.leaf_domain, (std::vector<int>{0, 0, 1, 1}));
  std::vector<int> slices(2);
  for (size_t b = 0; b < near.server.slices.size(); ++b) {
    for (size_t s = 0; s < near.server.slices[b].size(); ++s) {
      ++slices[static_cast<size_t>(near.server.slices[b][s].domain)];
      EXPECT_NEAR(far.server.slices[b][s].reduce.bytes, 2 * near.server.slices[b][s].reduce.bytes,
                  1e-3);
    }
  }
  EXPECT_GT(slices[0], 0);
  EXPECT_GT(slices[1], 0);
  EXPECT_GT(Simulate(near).seconds, 0);
}

}  // namespace
}  // namespace parax::test
