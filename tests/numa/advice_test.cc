#include "parax/numa/advice.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "parax/base/error.h"
#include "tests/numa/fake_system.h"

namespace parax {
namespace {

std::string Joined(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

const Advice* Find(const std::vector<Advice>& advice, const std::string& name) {
  for (const Advice& item : advice) {
    if (item.name == name) return &item;
  }
  return nullptr;
}

// A two-socket server where everything that can be lost is lost.
class BadServer : public FakeRoot {
 public:
  BadServer() {
    Write("proc/self/cgroup", "0::/job");
    Write("proc/self/status", "Cpus_allowed_list:\t0-55,58,112-167");
    Write("proc/meminfo", "MemTotal: 500000000 kB\nSwapTotal:       8000000 kB");
    Write("proc/sys/kernel/numa_balancing", "1");
    Write("sys/fs/cgroup/job/cpu.max", "1050000 100000");
    Write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]");
    Write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0");
    for (int cpu = 0; cpu < 4; ++cpu) {
      Write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpufreq/scaling_governor",
            cpu == 2 ? "powersave" : "performance");
    }
  }
};

TEST(Advice, EveryLossComesWithTheCommandThatEndsIt) {
  const FakeMachine machine(kTwoBy56Smt);
  const ScopedEnv binding("OMP_PROC_BIND", "true");
  const BadServer root;
  TopologyReport report = MakeReport({}, {root.path()});
  report.facts.mbind_denied = true;
  report.advice = Advise(report.topology, report.facts);
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"governor",
       "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"},
      {"quota", "echo max | sudo tee /sys/fs/cgroup/job/cpu.max"},
      {"smt-share", "echo off | sudo tee /sys/devices/system/cpu/smt/control"},
      {"affinity", "taskset -c 0-223 parax ...   # if the cpuset allows them"},
      {"openmp-binding", "unset OMP_PROC_BIND"},
      {"transparent-huge-pages",
       "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"},
      {"huge-pages", "sudo sysctl vm.nr_hugepages=122070"},
      {"swap", "sudo swapoff -a"},
      {"mbind", "docker run --cap-add SYS_NICE ...   # or run outside of the container"},
      {"numa-balancing", "sudo sysctl kernel.numa_balancing=0"}};
  ASSERT_EQ(report.advice.size(), expected.size()) << Joined(AdviceLines(report));
  const std::string lines = Joined(AdviceLines(report));
  for (const auto& [name, command] : expected) {
    const Advice* advice = Find(report.advice, name);
    ASSERT_NE(advice, nullptr) << name;
    EXPECT_EQ(advice->command, command);
    EXPECT_NE(lines.find("advice (" + name + "): " + advice->loss + "\n  " + command + "\n"),
              std::string::npos);
  }
  EXPECT_NE(Find(report.advice, "quota")->loss.find("10.5 CPUs leaves 47 of 57 cores unused"),
            std::string::npos)
      << Find(report.advice, "quota")->loss;
  EXPECT_NE(Find(report.advice, "smt-share")->loss.find("CPUs 58 "), std::string::npos);
}

TEST(Advice, NothingIsSaidOfAWellSetServer) {
  const FakeMachine machine(kTwoBy28);
  const FakeRoot root;
  root.Write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
  root.Write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "1000");
  root.Write("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "900");
  root.Write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance");
  root.Write("proc/sys/kernel/numa_balancing", "0");
  const TopologyReport report = MakeReport({}, {root.path()});
  EXPECT_TRUE(report.advice.empty()) << Joined(AdviceLines(report));
  EXPECT_EQ(AdviceLines(report).size(), 1u);
  const std::string lines = Joined(ReportLines(report));
  EXPECT_NE(lines.find("900 of 2 MB free, then transparent huge pages"), std::string::npos)
      << lines;
  EXPECT_EQ(report.facts.governor, "performance");
}

TEST(Advice, TheQuotaOfCgroupV1HasAnotherFile) {
  const FakeMachine machine("core:2 pu:1");
  const FakeRoot root;
  root.Write("proc/self/cgroup", "1:cpu:/job");
  root.Write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "150000");
  root.Write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000");
  const TopologyReport report = MakeReport({}, {root.path()});
  const Advice* advice = Find(report.advice, "quota");
  ASSERT_NE(advice, nullptr);
  EXPECT_EQ(advice->command, "echo -1 | sudo tee /sys/fs/cgroup/cpu/job/cpu.cfs_quota_us");
}

TEST(Report, SaysWhatWasFoundAndWhatIsUsed) {
  const FakeMachine machine(kTwoBy56Smt);
  const FakeRoot root;
  const TopologyReport report = MakeReport({.reserved_cores = 2}, {root.path()});
  const std::string lines = Joined(ReportLines(report));
  for (const char* part :
       {"not this machine", "2 sockets, 112 cores, 224 hardware threads, 512 GB of memory",
        "NUMA node 1: 56 cores usable (CPUs 112-223), 256 GB", "will use: 110 instances of 1 core",
        "NUMA node 0: 55 instances on CPUs 0-108:2\n", "input decoding: CPUs 110,222"}) {
    EXPECT_NE(lines.find(part), std::string::npos) << part << " is not in\n" << lines;
  }
}

// Case K, as `parax topo` shows it.
TEST(Report, NamesWhatRestrictsUs) {
  const FakeMachine machine("core:2 pu:1");
  const FakeRoot root;
  root.Write("proc/self/cgroup", "0::/job");
  root.Write("sys/fs/cgroup/job/cpu.max", "150000 100000");
  const std::string lines = Joined(ReportLines(MakeReport({}, {root.path()})));
  EXPECT_NE(lines.find("will use: 1 instance of 1 core"), std::string::npos) << lines;
  EXPECT_NE(lines.find("a CPU quota of 1.5 CPUs leaves 1 of 2 cores: 1 instance\n"),
            std::string::npos)
      << lines;
}

TEST(Report, Json) {
  const FakeMachine machine(kTwoBy28);
  const BadServer root;
  const auto json = nlohmann::json::parse(ReportJson(MakeReport({}, {root.path()})));
  EXPECT_EQ(json["machine_cores"], 56);
  EXPECT_DOUBLE_EQ(json["cpu_quota"].get<double>(), 10.5);
  EXPECT_EQ(json["domains"].size(), 2u);
  EXPECT_EQ(json["domains"][1]["cores"][0], nlohmann::json::array({28}));
  EXPECT_EQ(json["seats"].size(), 10u);
  EXPECT_EQ(json["seats"][5]["domain"], 1);
  EXPECT_EQ(json["pages"]["transparent"], "never");
  EXPECT_EQ(json["governor"], "powersave");
  EXPECT_EQ(json["swap_bytes"], 8192000000u);
  EXPECT_EQ(json["advice"][0]["name"], "governor");
  const FakeRoot free;
  EXPECT_TRUE(
      nlohmann::json::parse(ReportJson(MakeReport({}, {free.path()})))["cpu_quota"].is_null());
}

TEST(Report, ADescribedMachineIsNotGivenThisMachinesSettings) {
  const FakeMachine machine(kTwoBy28);
  const TopologyReport report = MakeReport();
  EXPECT_FALSE(report.facts.known);
  EXPECT_TRUE(report.advice.empty()) << Joined(AdviceLines(report));
  EXPECT_EQ(Joined(ReportLines(report)).find("memory pages"), std::string::npos);
}

TEST(Report, SaysWhenMbindIsDenied) {
  std::thread([] {
    if (!DenyMbind()) GTEST_SKIP() << "no seccomp here";
    const TopologyReport report = MakeReport();
    EXPECT_TRUE(report.facts.mbind_denied);
    EXPECT_NE(Joined(ReportLines(report)).find("mbind is denied"), std::string::npos);
  }).join();
}

TEST(Report, ThisMachine) {
  const TopologyReport report = MakeReport();
  EXPECT_FALSE(report.facts.isa.empty());
  EXPECT_GE(ReportLines(report).size(), 5u);
  EXPECT_EQ(ReportLines(report)[0].find("HWLOC"), std::string::npos);
}

}  // namespace
}  // namespace parax
