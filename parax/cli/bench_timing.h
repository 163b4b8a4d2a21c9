#pragma once

#include <vector>

#include "parax/base/stop.h"
#include "parax/data/input.h"

namespace parax {

// A piece of work with some images: when it began and ended, in seconds.
struct TimedWork {
  double begin = 0, end = 0;
  int64_t images = 0;
};

struct Rates {  // images a second
  double median = 0, lowest = 0, highest = 0;
};
// Over `windows` equal parts of [from, to]. Work that lies only partly in one counts in proportion.
Rates WindowRates(const std::vector<TimedWork>& work, double from, double to, int windows);

// Of how long pieces of work took, in seconds.
struct Latencies {
  double p50 = 0, p90 = 0, p99 = 0;
};
Latencies LatenciesOf(const std::vector<TimedWork>& work);

// Passes on what another source gives, and notes how long each leaf works on each micro-batch.
class TimedInput : public InputSource {
 public:
  TimedInput(InputSource& source, int leaves, size_t most_micro_batches);
  Outcome Acquire(int leaf, MicroBatch& batch) noexcept override;
  void Release(int leaf) noexcept override;
  std::string ErrorLine() const override { return source_.ErrorLine(); }

  const std::vector<TimedWork>& work(int leaf) const {
    return leaves_[static_cast<size_t>(leaf)].work;
  }

 private:
  struct alignas(64) Leaf {
    std::vector<TimedWork> work;  // as many as are reserved
    TimedWork now;
  };
  double Now() const { return SecondsSince(begin_); }

  InputSource& source_;
  Clock::time_point begin_ = Clock::now();
  std::vector<Leaf> leaves_;
};

}  // namespace parax
