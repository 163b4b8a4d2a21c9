#include "parax/numa/topology.h"

#include <gtest/gtest.h>
#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "parax/base/error.h"
#include "parax/numa/seat.h"
#include "tests/numa/fake_system.h"

namespace parax {
namespace {

bool HasNote(const Topology& topology, const std::string& text) {
  for (const std::string& note : topology.notes) {
    if (note.find(text) != std::string::npos) return true;
  }
  return false;
}

TEST(CpuList, Ranges) {
  EXPECT_EQ(CpuList({}), "");
  EXPECT_EQ(CpuList({3}), "3");
  EXPECT_EQ(CpuList({5, 0, 1, 2, 7, 8}), "0-2,5,7-8");
  EXPECT_EQ(CpuList({0, 2, 4, 6, 9, 11}), "0-6:2,9,11");
}

TEST(Topology, ThisMachine) {
  const Topology topology = DetectTopology();
  EXPECT_TRUE(topology.this_machine);
  EXPECT_FALSE(topology.cpu_model.empty());
  EXPECT_GE(topology.machine_pus, topology.machine_cores);
  EXPECT_GE(topology.machine_cores, static_cast<int>(topology.cores.size()));
  EXPECT_GT(topology.memory_limit_bytes, 0u);
  EXPECT_LE(topology.memory_limit_bytes, topology.memory_bytes);

  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  int pus = 0;
  for (size_t c = 0; c < topology.cores.size(); ++c) {
    const Core& core = topology.cores[c];
    for (int pu : core.pus) EXPECT_TRUE(CPU_ISSET(pu, &mask)) << pu;
    pus += static_cast<int>(core.pus.size());
    const auto& of_domain = topology.domains.at(static_cast<size_t>(core.domain)).cores;
    EXPECT_NE(std::find(of_domain.begin(), of_domain.end(), static_cast<int>(c)), of_domain.end());
  }
  EXPECT_EQ(pus, CPU_COUNT(&mask));
}

TEST(Topology, TwoSockets) {
  const FakeMachine machine(kTwoBy28);
  const Topology topology = DetectTopology();
  EXPECT_FALSE(topology.this_machine);
  EXPECT_EQ(topology.sockets, 2);
  EXPECT_EQ(topology.machine_cores, 56);
  ASSERT_EQ(topology.domains.size(), 2u);
  EXPECT_EQ(topology.domains[1].os_node, 1);
  EXPECT_EQ(topology.domains[1].memory_bytes, 256000000000u);
  EXPECT_EQ(topology.domains[1].cores.size(), 28u);
  EXPECT_EQ(topology.cores[28].domain, 1);
  EXPECT_EQ(topology.memory_bytes, 512000000000u);
  EXPECT_EQ(topology.cpu_quota, std::numeric_limits<double>::infinity());
}

TEST(Topology, ACoreHasAllItsHardwareThreads) {
  const FakeMachine machine(kTwoBy56Smt);
  const Topology topology = DetectTopology();
  EXPECT_EQ(topology.machine_cores, 112);
  EXPECT_EQ(topology.machine_pus, 224);
  ASSERT_EQ(topology.cores.size(), 112u);
  EXPECT_EQ(topology.cores[1].pus, (std::vector<int>{2, 3}));
  EXPECT_EQ(topology.cores[1].siblings, 2);
}

TEST(Topology, MachinesThatHideTheirCores) {
  const FakeMachine machine("numa:1 pu:4");
  EXPECT_EQ(DetectTopology().cores.size(), 4u);
}

// The second node of each package has the same CPUs: high-bandwidth or CXL memory.
TEST(Topology, MemoryOnlyNodesGetNoInstances) {
  const FakeMachine machine(
      "pack:2 [numa(memory=100000000000)] [numa(memory=64000000000)] core:4 pu:1");
  const Topology topology = DetectTopology();
  ASSERT_EQ(topology.domains.size(), 2u);
  EXPECT_EQ(topology.domains[0].memory_bytes, 100000000000u);
  EXPECT_EQ(topology.domains[1].memory_bytes, 100000000000u);
  EXPECT_EQ(topology.domains[0].cores.size(), 4u);
  EXPECT_TRUE(HasNote(topology, "(64.0 GB) has memory but no CPUs")) << topology.notes.size();
}

TEST(Topology, NodesWithoutMemoryAreNotChosen) {
  const FakeMachine machine("pack:1 [numa(memory=0)] [numa(memory=64000000000)] core:2 pu:1");
  const Topology topology = DetectTopology();
  ASSERT_EQ(topology.domains.size(), 1u);
  EXPECT_EQ(topology.domains[0].os_node, 1);
  EXPECT_TRUE(topology.notes.empty());
}

TEST(Topology, TheInjectedAffinityMaskCounts) {
  const FakeMachine machine(kTwoBy56Smt);
  const FakeRoot root;
  root.Write("proc/self/status",
             "Name:\tparax\nCpus_allowed:\tff\nCpus_allowed_list:\t0-1,3,112-223");
  const Topology topology = DetectTopology({root.path()});
  ASSERT_EQ(topology.cores.size(), 58u);
  EXPECT_EQ(topology.cores[0].pus, (std::vector<int>{0, 1}));
  EXPECT_EQ(topology.cores[1].pus, (std::vector<int>{3}));
  EXPECT_EQ(topology.cores[1].siblings, 2);
  EXPECT_EQ(topology.domains[0].cores.size(), 2u);
  EXPECT_EQ(topology.machine_cores, 112);
  EXPECT_TRUE(HasNote(topology, "allows 115 of 224 CPUs: 0-1,3,112-223"));
}

TEST(Topology, ADomainWithoutUsableCoresIsNoDomain) {
  const FakeMachine machine(kTwoBy28);
  const FakeRoot root;
  root.Write("proc/self/status", "Cpus_allowed_list:\t30-31");
  const Topology topology = DetectTopology({root.path()});
  ASSERT_EQ(topology.domains.size(), 1u);
  EXPECT_EQ(topology.domains[0].os_node, 1);
  EXPECT_EQ(topology.cores[0].domain, 0);
  EXPECT_FALSE(HasNote(topology, "no CPUs")) << "node 0 has CPUs, only not for us";
}

TEST(Topology, NoCpuLeftIsAnError) {
  const FakeMachine machine(kTwoBy28);
  const FakeRoot root;
  root.Write("proc/self/status", "Cpus_allowed_list:\t100-101");
  EXPECT_THROW(DetectTopology({root.path()}), Error);
}

TEST(Topology, TheMemoryLimitCounts) {
  const FakeMachine machine("core:2 pu:1");
  const FakeRoot root;
  root.Write("proc/self/cgroup", "0::/job");
  root.Write("sys/fs/cgroup/job/memory.max", "500000000");
  const Topology topology = DetectTopology({root.path()});
  EXPECT_EQ(topology.memory_limit_bytes, 500000000u);
  EXPECT_GT(topology.memory_bytes, topology.memory_limit_bytes);
  EXPECT_TRUE(HasNote(topology, "the memory limit is 500 MB (/sys/fs/cgroup/job/memory.max)"));
}

// Case K: a quota of 1.5 CPUs on 2.
TEST(Topology, ACpuQuotaLeavesFewerInstancesAndSaysSo) {
  const FakeMachine machine("core:2 pu:1");
  const FakeRoot root;
  root.Write("proc/self/cgroup", "0::/job");
  root.Write("sys/fs/cgroup/job/cpu.max", "150000 100000");
  const Topology topology = DetectTopology({root.path()});
  EXPECT_EQ(topology.cores.size(), 2u);
  EXPECT_DOUBLE_EQ(topology.cpu_quota, 1.5);
  EXPECT_EQ(topology.cpu_quota_file, "/sys/fs/cgroup/job/cpu.max");
  const SeatPlan plan = PlanSeats(topology, {});
  EXPECT_EQ(plan.seats.size(), 1u);
  ASSERT_EQ(plan.notes.size(), 1u);
  EXPECT_EQ(plan.notes[0], "a CPU quota of 1.5 CPUs leaves 1 of 2 cores: 1 instance");
  EXPECT_THROW(PlanSeats(topology, {.instances = 2}), UsageError);
}

// Case K: an affinity mask of one CPU, really set.
TEST(Topology, AnAffinityMaskOfOneCpu) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  if (CPU_COUNT(&mask) < 2) GTEST_SKIP() << "needs two CPUs";
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &mask)) --last;
  std::thread([last] {
    ASSERT_TRUE(BindThread({last}));
    const Topology topology = DetectTopology();
    ASSERT_EQ(topology.cores.size(), 1u);
    EXPECT_EQ(topology.cores[0].pus, (std::vector<int>{last}));
    EXPECT_TRUE(HasNote(topology, "the affinity mask (taskset) allows 1 of "));
    const SeatPlan plan = PlanSeats(topology, {});
    ASSERT_EQ(plan.seats.size(), 1u);
    EXPECT_EQ(plan.seats[0].pus, (std::vector<int>{last}));
  }).join();
}

// A machine of two packages with two cores each, of which the cpuset forbids CPU 1 and the second
// package's memory, as hwloc saves it.
TEST(Topology, TheCpusetCounts) {
  const FakeRoot folder;
  const std::string file = folder.path() / "machine.xml";
  {
    hwloc_topology_t topology;
    hwloc_topology_init(&topology);
    hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    hwloc_topology_set_synthetic(topology, "pack:2 [numa] core:2 pu:1");
    hwloc_topology_load(topology);
    const hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
    const hwloc_bitmap_t nodes = hwloc_bitmap_alloc();
    hwloc_bitmap_list_sscanf(cpus, "0,2-3");
    hwloc_bitmap_set(nodes, 0);
    ASSERT_EQ(hwloc_topology_allow(topology, cpus, nodes, HWLOC_ALLOW_FLAG_CUSTOM), 0);
    ASSERT_EQ(hwloc_topology_export_xml(topology, file.c_str(), 0), 0);
    hwloc_bitmap_free(cpus);
    hwloc_bitmap_free(nodes);
    hwloc_topology_destroy(topology);
  }
  const ScopedEnv machine("HWLOC_XMLFILE", file);
  const Topology topology = DetectTopology();
  EXPECT_EQ(topology.machine_cores, 4);
  ASSERT_EQ(topology.cores.size(), 3u);
  EXPECT_EQ(topology.cores[1].pus, (std::vector<int>{2}));
  EXPECT_TRUE(HasNote(topology, "the cpuset allows 3 of 4 CPUs: 0,2-3"));
  EXPECT_TRUE(HasNote(topology, "the cpuset forbids the memory of NUMA node 1"));
}

// Linux' own files, of a machine of four CPUs whose last is offline and whose node 1 is CPU-less.
TEST(Topology, OfflineCpusAndCpuLessNodes) {
  const FakeRoot root;
  const std::string system = "sys/devices/system/";
  for (int cpu = 0; cpu < 4; ++cpu) {
    const std::string folder = system + "cpu/cpu" + std::to_string(cpu) + "/";
    root.Write(folder + "online", cpu == 3 ? "0" : "1");
    if (cpu == 3) continue;
    const std::string mask = std::to_string(1 << cpu);
    root.Write(folder + "topology/core_id", std::to_string(cpu));
    root.Write(folder + "topology/physical_package_id", "0");
    root.Write(folder + "topology/core_cpus", mask);
    root.Write(folder + "topology/thread_siblings", mask);
    root.Write(folder + "topology/package_cpus", "7");
    root.Write(folder + "topology/core_siblings", "7");
  }
  root.Write(system + "cpu/online", "0-2");
  root.Write(system + "node/online", "0-1");
  for (int node = 0; node < 2; ++node) {
    const std::string folder = system + "node/node" + std::to_string(node) + "/";
    root.Write(folder + "cpumap", node == 0 ? "7" : "0");
    root.Write(folder + "meminfo", "Node " + std::to_string(node) + " MemTotal: 8000000 kB");
    root.Write(folder + "distance", node == 0 ? "10 17" : "17 10");
  }
  root.Write("proc/cpuinfo",
             "processor : 0\nmodel name : Test CPU\n\nprocessor : 1\n\nprocessor : 2\n");
  root.Write("proc/meminfo", "MemTotal: 16000000 kB");
  const ScopedEnv fsroot("HWLOC_FSROOT", root.path());
  const Topology topology = DetectTopology({root.path()});
  EXPECT_EQ(topology.cores.size(), 3u);
  EXPECT_TRUE(HasNote(topology, "CPUs 3 are offline"));
  ASSERT_EQ(topology.domains.size(), 1u);
  EXPECT_EQ(topology.domains[0].os_node, 0);
  EXPECT_TRUE(HasNote(topology, "NUMA node 1 (8.19 GB) has memory but no CPUs"));
}

}  // namespace
}  // namespace parax
