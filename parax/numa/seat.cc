#include "parax/numa/seat.h"

#include <immintrin.h>
#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <memory>

#include "parax/base/error.h"

namespace parax {
namespace {

// How a domain's cores are handed out: seats from the front, reserved cores from the back.
struct Share {
  int free = 0;
  int reserved = 0;
  int seats = 0;
};

// Spreads over the domains, so that memory bandwidth is shared by as few as possible.
std::vector<Share> ReserveCores(const Topology& topology, int reserved) {
  std::vector<Share> shares;
  for (const Domain& domain : topology.domains) {
    shares.push_back({static_cast<int>(domain.cores.size()), 0, 0});
  }
  for (int i = 0; i < reserved; ++i) {
    const auto most =
        std::max_element(shares.begin(), shares.end(),
                         [](const Share& a, const Share& b) { return a.free < b.free; });
    --most->free;
    ++most->reserved;
  }
  return shares;
}

// Places `instances` seats of `k` cores; false when they do not fit.
bool PlaceSeats(std::vector<Share>& shares, int instances, int k) {
  for (int i = 0; i < instances; ++i) {
    Share* fewest = nullptr;
    for (Share& share : shares) {
      if (share.free >= k && (fewest == nullptr || share.seats < fewest->seats)) fewest = &share;
    }
    if (fewest == nullptr) return false;
    fewest->free -= k;
    ++fewest->seats;
  }
  return true;
}

}  // namespace

SeatPlan PlanSeats(const Topology& topology, const SeatRequest& request) {
  int k = request.cores_per_instance;
  if (k < 0) FailUsage("an instance needs at least 1 core, not {}", k);
  if (request.instances < 0) FailUsage("{} instances make no sense", request.instances);
  if (request.reserved_cores < 0) FailUsage("cannot reserve {} cores", request.reserved_cores);

  const int usable = static_cast<int>(topology.cores.size());
  const double quota = std::max(1.0, std::floor(topology.cpu_quota + 1e-9));
  const int budget = quota < usable ? static_cast<int>(quota) : usable;
  const std::string why = budget < usable ? fmt::format(" (the CPU quota is {:.4g} of {} cores)",
                                                        topology.cpu_quota, usable)
                                          : std::string();
  if (request.reserved_cores >= budget) {
    FailUsage("{} cores cannot be reserved: there are {} usable cores{}, and an instance needs one",
              request.reserved_cores, budget, why);
  }

  std::vector<Share> shares = ReserveCores(topology, request.reserved_cores);
  const int free = budget - request.reserved_cores;
  if (k == 0) {
    const int instances =
        request.instances > 0 ? request.instances : static_cast<int>(topology.domains.size());
    const auto fits = [&](int cores) {
      std::vector<Share> tried = shares;
      return instances <= free / cores && PlaceSeats(tried, instances, cores);
    };
    for (k = free; k > 1 && !fits(k);) --k;
  }
  int most = 0;
  for (const Share& share : shares) most += share.free / k;
  most = std::min(most, free / k);
  if (most == 0) {
    FailUsage(
        "no NUMA domain has {} usable cores for one instance{}: ask for fewer cores per instance",
        k, why);
  }
  const int instances = request.instances == 0 ? most : request.instances;
  if (instances > most || !PlaceSeats(shares, instances, k)) {
    FailUsage("{} instances of {} core{} do not fit: there is room for {}{}", instances, k,
              k == 1 ? "" : "s", most, why);
  }

  SeatPlan plan;
  for (size_t d = 0; d < shares.size(); ++d) {
    const std::vector<int>& cores = topology.domains[d].cores;
    auto core = cores.begin();
    for (int s = 0; s < shares[d].seats; ++s) {
      Seat seat{
          static_cast<int>(plan.seats.size()), static_cast<int>(d), {}, topology.this_machine};
      for (int i = 0; i < k; ++i) {
        seat.pus.push_back(topology.cores[static_cast<size_t>(*core++)].pus.front());
      }
      plan.seats.push_back(std::move(seat));
    }
    for (auto last = cores.end() - shares[d].reserved; last != cores.end(); ++last) {
      plan.reserved_pus.push_back(topology.cores[static_cast<size_t>(*last)].pus.front());
    }
  }
  if (budget < usable) {
    plan.notes.push_back(
        fmt::format("a CPU quota of {:.4g} CPUs leaves {} of {} cores: {} instance{}",
                    topology.cpu_quota, budget, usable, instances, instances == 1 ? "" : "s"));
  }
  return plan;
}

bool BindThread(const std::vector<int>& pus) {
  if (pus.empty()) return true;
  const auto [lowest, highest] = std::minmax_element(pus.begin(), pus.end());
  if (*lowest < 0) {
    errno = EINVAL;
    return false;
  }
  const auto count = static_cast<size_t>(*highest) + 1;
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(count),
                                                             [](cpu_set_t* s) { CPU_FREE(s); });
  const size_t bytes = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(bytes, set.get());
  for (int pu : pus) CPU_SET_S(static_cast<size_t>(pu), bytes, set.get());
  return sched_setaffinity(0, bytes, set.get()) == 0;
}

bool EnterSeat(const Seat& seat) {
  constexpr unsigned kFlushToZero = 0x8000;
  constexpr unsigned kDenormalsAreZero = 0x0040;
  const auto enter = [&](size_t worker) {
    _mm_setcsr(_mm_getcsr() | kFlushToZero | kDenormalsAreZero);
    return !seat.bind || seat.pus.empty() || BindThread({seat.pus[worker]});
  };
  const int k = std::max(1, static_cast<int>(seat.pus.size()));
  omp_set_dynamic(0);
  omp_set_max_active_levels(1);  // OMP_MAX_ACTIVE_LEVELS=0 would leave one thread a team
  omp_set_num_threads(k);
  if (k == 1) return enter(0);  // no team is started: ThreadSanitizer does not understand libgomp's
  std::atomic<int> team{0}, entered{0};
  // The team is this thread's own and stays alive between parallel regions of the same size.
#pragma omp parallel num_threads(k)
  {
    team.fetch_add(1);
    if (enter(static_cast<size_t>(omp_get_thread_num()))) entered.fetch_add(1);
  }
  if (team.load() < k) {
    FailUsage(
        "OpenMP gives an instance {} of its {} threads: unset OMP_THREAD_LIMIT (now {}) or ask for "
        "fewer cores per instance",
        team.load(), k, omp_get_thread_limit());
  }
  return entered.load() == k;
}

}  // namespace parax
