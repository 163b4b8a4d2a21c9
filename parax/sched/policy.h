#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace parax {

// The decisions of the overlap scheduler: pure functions of what is known, without time or threads.
// The instances (sched/scheduler.h) and the many-core simulator both call them.

enum class SchedulePolicy : uint8_t {
  kBarriered,  // one instance with all cores of a domain; nothing is decided between ops
  kFree,       // instances run as they come
  kStagger,    // as kFree, but their first passes begin one after another
  kGate,       // at most so many access-intensive ops of a domain at once; others wait
  kGateDefer,  // as kGate, but who would wait runs a deferred weight gradient instead
};
// "barriered", "free", "stagger", "gate", "gate+defer", in the order of the enumeration.
const std::vector<std::string>& SchedulePolicyNames();
// Throws UsageError naming the nearest.
SchedulePolicy ParseSchedulePolicy(std::string_view name);

// What an op needs most: the core's arithmetic, or the memory that all cores of a domain share.
enum class Phase : uint8_t { kComputeBound, kAccessIntensive };

// What one instance's seat reaches.
struct SeatRates {
  double flops = 0;        // a second
  double bytes = 0;        // a second, copying while all seats of the domain copy
  double bytes_alone = 0;  // a second, copying alone
};

struct OpCost {
  double flops = 0;
  double bytes = 0;    // least memory traffic
  double seconds = 0;  // as measured with all seats at work; 0: not known
};

// Access-intensive: memory would take longer than arithmetic. A measured time corrects that for
// what stays in caches (faster than memory can be) and for what is slow for another reason (far
// from using the seat's share of the bandwidth).
Phase PhaseOf(const OpCost& op, const SeatRates& seat);

// The fewest seats that reach 90 % of the largest bandwidth; `bandwidth`: of 1, 2 ... seats at
// once. At least 1.
int GateLimit(const std::vector<double>& bandwidth);

// Places at a domain's gate: `limit` (at least 1) where somebody could have to wait, else 0 (no
// gate).
int GatePlaces(SchedulePolicy policy, int limit, int instances);

struct GateState {
  int running = 0;  // access-intensive ops and slices of the domain
  int limit = 0;    // 0: no gate, as many as there are
  bool open() const { return limit == 0 || running < limit; }
};

// What an instance is about to do.
struct NextOp {
  Phase phase = Phase::kComputeBound;
  bool deferrable = false;  // a compute-bound weight gradient that the plan lets run later
  bool deferred = false;    // some op that was deferred has not run yet
};

enum class Action : uint8_t {
  kRun,          // the op; an access-intensive one counts in `running` until it is done
  kDefer,        // put the op off and go on to the one after it
  kRunDeferred,  // the deferred op that must run soonest, then decide again
  kWait,         // until somebody leaves the gate, then decide again
};

// An access-intensive op needs room at the gate. While there is room, weight gradients are put off,
// so that the memory is put to use now and there is work left for when it is busy; while there is
// none they run. The engine runs a deferred op that has come to its latest position whatever this
// says.
Action Decide(SchedulePolicy policy, const GateState& gate, const NextOp& next);

// Whether a leaf that lost this part of its time, because its core ran others, opens its
// domain's gate to all. With a place it would keep others waiting while it does not run; a wait
// would delay the very leaf that all wait for at the update; and who waits for it there has no use
// for bandwidth saved or work put off.
bool Crowded(double lost);

// kStagger: the op before which instance 0 must have come in its first pass over `ops` ops, when
// instance `index` of `instances` begins its own.
int StaggerOp(int index, int instances, int ops);

}  // namespace parax
