#pragma once

#include <string>
#include <vector>

#include "parax/numa/topology.h"

namespace parax {

// The core set and NUMA domain of one instance.
struct Seat {
  int index = 0;
  int domain = 0;        // index into Topology::domains
  std::vector<int> pus;  // one PU a core: an instance runs as many threads as this is long
  bool bind = true;      // false for a topology that is not this machine's
};

struct SeatRequest {
  int instances = 0;           // 0: as many as fit
  int cores_per_instance = 1;  // 0: as many as each can have; without `instances`, one a domain
  int reserved_cores = 0;      // kept free for input decoding, taken evenly from the domains
};

struct SeatPlan {
  std::vector<Seat> seats;         // ordered by domain, then core
  std::vector<int> reserved_pus;   // of reserved cores
  std::vector<std::string> notes;  // e.g. that a quota of 1.5 CPUs leaves one instance
};

// No seat crosses a domain and no core is used twice; with a CPU quota, at most floor(quota) cores
// (at least one) are used. Throws UsageError when more is asked for than there is, saying how much
// is.
SeatPlan PlanSeats(const Topology& topology, const SeatRequest& request);

// Binds the calling thread to the PUs; false (and errno) when the OS refuses. An empty list: no-op.
bool BindThread(const std::vector<int>& pus);

// Prepares the calling thread as an instance: binds it, sets flush-to-zero and denormals-are-zero,
// and omp_set_num_threads(seat.pus.size()) with the OpenMP team bound and flushing likewise.
// Returns false when binding was refused; everything else is done all the same. Throws UsageError
// when the team comes out smaller (OMP_THREAD_LIMIT): kernels made for a larger one would hang.
bool EnterSeat(const Seat& seat);

}  // namespace parax
