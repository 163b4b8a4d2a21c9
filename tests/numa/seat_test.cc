#include "parax/numa/seat.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <sched.h>

#include <atomic>
#include <bit>
#include <cstdlib>
#include <limits>
#include <set>
#include <thread>

#include "parax/base/error.h"
#include "tests/numa/fake_system.h"

namespace parax {
namespace {

Topology Machine(const std::string& synthetic) {
  const FakeMachine machine(synthetic);
  return DetectTopology();
}

std::string RefusalOf(const Topology& topology, const SeatRequest& request) {
  try {
    PlanSeats(topology, request);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "not refused";
}

int SeatsOf(const SeatPlan& plan, int domain) {
  int n = 0;
  for (const Seat& seat : plan.seats) n += seat.domain == domain ? 1 : 0;
  return n;
}

// What always holds: seats in order, no core twice, none across domains.
void ExpectSound(const Topology& topology, const SeatPlan& plan, size_t k) {
  std::set<int> used(plan.reserved_pus.begin(), plan.reserved_pus.end());
  EXPECT_EQ(used.size(), plan.reserved_pus.size());
  int last_domain = 0;
  for (size_t i = 0; i < plan.seats.size(); ++i) {
    const Seat& seat = plan.seats[i];
    EXPECT_EQ(seat.index, static_cast<int>(i));
    EXPECT_GE(seat.domain, last_domain);
    last_domain = seat.domain;
    EXPECT_EQ(seat.pus.size(), k);
    for (int pu : seat.pus) {
      EXPECT_TRUE(used.insert(pu).second) << "CPU " << pu << " twice";
      for (const Core& core : topology.cores) {
        if (std::find(core.pus.begin(), core.pus.end(), pu) == core.pus.end()) continue;
        EXPECT_EQ(core.domain, seat.domain);
        EXPECT_EQ(core.pus.front(), pu) << "not the core's first hardware thread";
      }
    }
  }
}

TEST(PlanSeats, OneInstanceACore) {
  const Topology topology = Machine(kTwoBy56Smt);
  const SeatPlan plan = PlanSeats(topology, {});
  EXPECT_EQ(plan.seats.size(), 112u);
  EXPECT_TRUE(plan.notes.empty());
  ExpectSound(topology, plan, 1);
  EXPECT_EQ(plan.seats[1].pus, (std::vector<int>{2}));
  EXPECT_FALSE(plan.seats[0].bind) << "not this machine's";
}

TEST(PlanSeats, FewInstancesSpreadOverTheDomains) {
  const Topology topology = Machine(kTwoBy28);
  const SeatPlan plan = PlanSeats(topology, {.instances = 3});
  ExpectSound(topology, plan, 1);
  EXPECT_EQ(SeatsOf(plan, 0), 2);
  EXPECT_EQ(SeatsOf(plan, 1), 1);
}

TEST(PlanSeats, SeveralCoresAnInstanceNeverCrossADomain) {
  const Topology topology = Machine("pack:2 [numa] core:5 pu:1");
  const SeatPlan plan = PlanSeats(topology, {.cores_per_instance = 2});
  EXPECT_EQ(plan.seats.size(), 4u);  // not 5: one core a domain is left over
  ExpectSound(topology, plan, 2);
  EXPECT_NE(RefusalOf(topology, {.instances = 5, .cores_per_instance = 2}).find("room for 4"),
            std::string::npos);
}

TEST(PlanSeats, AllCoresAreAsManyAsTheInstancesCanHave) {
  const auto cores = [](const Topology& topology, int instances, int reserved) {
    const SeatPlan plan = PlanSeats(topology, {instances, 0, reserved});
    const size_t expected = instances == 0 ? topology.domains.size() : size_t(instances);
    EXPECT_EQ(plan.seats.size(), expected);
    ExpectSound(topology, plan, static_cast<int>(plan.seats[0].pus.size()));
    return static_cast<int>(plan.seats[0].pus.size());
  };
  Topology topology = Machine(kTwoBy28);
  EXPECT_EQ(cores(topology, 1, 0), 28) << "one domain's";
  EXPECT_EQ(cores(topology, 2, 0), 28);
  EXPECT_EQ(cores(topology, 3, 0), 14);
  EXPECT_EQ(cores(topology, 0, 0), 28);
  EXPECT_EQ(cores(topology, 2, 4), 26);
  EXPECT_EQ(cores(topology, 56, 0), 1);
  topology.cpu_quota = 10;
  EXPECT_EQ(cores(topology, 1, 0), 10);
  EXPECT_EQ(cores(topology, 3, 0), 3);
  EXPECT_NE(RefusalOf(topology, {11, 0, 0}).find("room for 10"), std::string::npos);
}

TEST(PlanSeats, ReservedCoresComeEvenlyFromTheDomains) {
  const Topology topology = Machine(kTwoBy28);
  const SeatPlan plan = PlanSeats(topology, {.reserved_cores = 4});
  ExpectSound(topology, plan, 1);
  EXPECT_EQ(plan.seats.size(), 52u);
  EXPECT_EQ(plan.reserved_pus, (std::vector<int>{26, 27, 54, 55}));
}

TEST(PlanSeats, TheQuotaCountsReservedCoresToo) {
  Topology topology = Machine(kTwoBy28);
  topology.cpu_quota = 10.9;
  const SeatPlan plan = PlanSeats(topology, {.reserved_cores = 2});
  ExpectSound(topology, plan, 1);
  EXPECT_EQ(plan.seats.size(), 8u);
  EXPECT_EQ(SeatsOf(plan, 0), 4);
  ASSERT_EQ(plan.notes.size(), 1u);
  EXPECT_EQ(plan.notes[0], "a CPU quota of 10.9 CPUs leaves 10 of 56 cores: 8 instances");
}

TEST(PlanSeats, AQuotaBelowOneCpuStillRunsOneInstance) {
  Topology topology = Machine("core:4 pu:1");
  topology.cpu_quota = 0.5;
  EXPECT_EQ(PlanSeats(topology, {}).seats.size(), 1u);
}

TEST(PlanSeats, AnAmpleQuotaIsNotMentioned) {
  Topology topology = Machine("core:4 pu:1");
  topology.cpu_quota = 4.0;
  const SeatPlan plan = PlanSeats(topology, {});
  EXPECT_EQ(plan.seats.size(), 4u);
  EXPECT_TRUE(plan.notes.empty());
}

TEST(PlanSeats, RefusalsSayHowMuchThereIs) {
  Topology topology = Machine(kTwoBy28);
  EXPECT_EQ(RefusalOf(topology, {.instances = 57}),
            "57 instances of 1 core do not fit: there is room for 56");
  EXPECT_NE(RefusalOf(topology, {.cores_per_instance = 29}).find("29 usable cores"),
            std::string::npos);
  EXPECT_NE(RefusalOf(topology, {.reserved_cores = 56}).find("56 usable cores"), std::string::npos);
  EXPECT_NE(RefusalOf(topology, {.cores_per_instance = -1}), "not refused");
  EXPECT_NE(RefusalOf(topology, {.instances = -1}), "not refused");
  EXPECT_NE(RefusalOf(topology, {.reserved_cores = -1}), "not refused");
  topology.cpu_quota = 1.5;
  EXPECT_NE(RefusalOf(topology, {.instances = 2}).find("the CPU quota is 1.5 of 56 cores"),
            std::string::npos);
}

std::vector<int> Affinity() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  sched_getaffinity(0, sizeof mask, &mask);
  std::vector<int> pus;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &mask)) pus.push_back(i);
  }
  return pus;
}

// Looks at the bits, because a comparison would flush its operands too.
bool FlushesDenormals() {
  volatile float tiny = 1e-39f;  // denormal
  volatile float least = std::numeric_limits<float>::min();
  volatile float from_operand = tiny * 1e6f;
  volatile float as_result = least * 0.5f;
  return std::bit_cast<uint32_t>(static_cast<float>(from_operand)) == 0 &&
         std::bit_cast<uint32_t>(static_cast<float>(as_result)) == 0;
}

TEST(BindThread, BindsOrSaysNo) {
  const int pu = Affinity().back();
  std::thread([pu] {
    EXPECT_TRUE(BindThread({}));
    EXPECT_TRUE(BindThread({pu}));
    EXPECT_EQ(Affinity(), (std::vector<int>{pu}));
    EXPECT_FALSE(BindThread({5000}));
    EXPECT_EQ(errno, EINVAL);
    EXPECT_FALSE(BindThread({-1}));
    EXPECT_EQ(Affinity(), (std::vector<int>{pu}));
  }).join();
}

TEST(EnterSeat, OneCore) {
  const int pu = Affinity().back();
  EXPECT_FALSE(FlushesDenormals()) << "this thread should not be touched yet";
  std::thread([pu] {
    EXPECT_TRUE(EnterSeat({0, 0, {pu}, true}));
    EXPECT_EQ(Affinity(), (std::vector<int>{pu}));
    EXPECT_TRUE(FlushesDenormals());
    EXPECT_EQ(omp_get_max_threads(), 1);
  }).join();
  EXPECT_FALSE(FlushesDenormals());
}

TEST(EnterSeat, EveryWorkerOfTheTeamIsBoundAndFlushes) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer does not see libgomp's synchronisation";
#endif
  const std::vector<int> all = Affinity();
  const std::vector<int> pus = {all.front(), all.back(), all.front()};
  std::thread([pus] {
  // A team that existed before must be prepared as well.
#pragma omp parallel num_threads(3)
    EXPECT_FALSE(FlushesDenormals());
    EXPECT_TRUE(EnterSeat({0, 0, pus, true}));
    int seen = 0;
#pragma omp parallel reduction(+ : seen)
    {
      const int expected = pus[static_cast<size_t>(omp_get_thread_num())];
      if (FlushesDenormals() && Affinity() == std::vector<int>{expected}) seen = 1;
    }
    EXPECT_EQ(seen, 3);
  }).join();
}

TEST(EnterSeat, ARefusedBindingIsReportedButTheRestIsDone) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer does not see libgomp's synchronisation";
#endif
  std::thread([] {
    EXPECT_FALSE(EnterSeat({0, 0, {5000, 5001}, true}));
    int flushing = 0;
#pragma omp parallel reduction(+ : flushing)
    flushing = FlushesDenormals() ? 1 : 0;
    EXPECT_EQ(flushing, 2);
  }).join();
}

// Child processes, because OpenMP reads its variables when a program starts. Each exits with the
// size of a two-core seat's team.
TEST(EnterSeatDeathTest, TheTeamIsWholeOrRefused) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer does not see libgomp's synchronisation";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto enter = [] {
    try {
      EnterSeat({0, 0, {0, 1}, false});
    } catch (const UsageError& error) {
      fmt::print(stderr, "{}\n", error.what());
      std::exit(0);
    }
    std::atomic<int> team{0};
#pragma omp parallel
    team.fetch_add(1);
    std::exit(team.load());
  };
  {
    const ScopedEnv limit("OMP_THREAD_LIMIT", "1");
    EXPECT_EXIT(enter(), ::testing::ExitedWithCode(0),
                "gives an instance 1 of its 2 threads: unset OMP_THREAD_LIMIT \\(now 1\\)");
  }
  for (const auto& [name, value] :
       {std::pair("OMP_MAX_ACTIVE_LEVELS", "0"), std::pair("OMP_DYNAMIC", "true"),
        std::pair("OMP_NUM_THREADS", "1")}) {
    const ScopedEnv variable(name, value);
    EXPECT_EXIT(enter(), ::testing::ExitedWithCode(2), "") << name;
  }
}

TEST(EnterSeat, SeatsOfADescribedMachineAreNotBound) {
  const std::vector<int> before = Affinity();
  std::thread([before] {
    EXPECT_TRUE(EnterSeat({0, 0, {before.back()}, false}));
    EXPECT_EQ(Affinity(), before);
    EXPECT_TRUE(EnterSeat({0, 0, {}, true}));
    EXPECT_EQ(Affinity(), before) << "a seat without CPUs leaves the thread where it was";
  }).join();
}

}  // namespace
}  // namespace parax
