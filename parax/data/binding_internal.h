#pragma once

#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_scheduler_observer.h>
#include <sched.h>

#include <vector>

#include "parax/numa/seat.h"

namespace parax {

// Binds every thread that works in an arena to the PUs for as long as it does: oneTBB's threads
// serve other arenas too. With an empty list nothing is bound.
class ArenaBinding final : public tbb::task_scheduler_observer {
 public:
  ArenaBinding(tbb::task_arena& arena, std::vector<int> pus)
      : tbb::task_scheduler_observer(arena), pus_(std::move(pus)) {
    if (!pus_.empty()) observe(true);
  }
  ~ArenaBinding() override { observe(false); }

  void on_scheduler_entry(bool) override {
    sched_getaffinity(0, sizeof Before(), &Before());
    BindThread(pus_);
  }
  void on_scheduler_exit(bool) override { sched_setaffinity(0, sizeof Before(), &Before()); }

 private:
  static cpu_set_t& Before() {
    static thread_local cpu_set_t before;
    return before;
  }

  std::vector<int> pus_;
};

}  // namespace parax
