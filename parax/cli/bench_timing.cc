#include "parax/cli/bench_timing.h"

#include <algorithm>
#include <cmath>

namespace parax {

Rates WindowRates(const std::vector<TimedWork>& work, double from, double to, int windows) {
  const double width = (to - from) / windows;
  std::vector<double> rates;
  for (int w = 0; w < windows; ++w) {
    const double begin = from + w * width, end = begin + width;
    double images = 0;
    for (const TimedWork& piece : work) {
      const double inside = std::min(end, piece.end) - std::max(begin, piece.begin);
      if (inside <= 0) continue;
      images += static_cast<double>(piece.images) * inside / (piece.end - piece.begin);
    }
    rates.push_back(images / width);
  }
  std::ranges::sort(rates);
  const size_t half = rates.size() / 2;
  const double median = rates.size() % 2 == 1 ? rates[half] : (rates[half - 1] + rates[half]) / 2;
  return {median, rates.front(), rates.back()};
}

Latencies LatenciesOf(const std::vector<TimedWork>& work) {
  std::vector<double> seconds;
  for (const TimedWork& piece : work) seconds.push_back(piece.end - piece.begin);
  std::ranges::sort(seconds);
  const auto at = [&](double part) {  // the nearest rank
    const auto rank = static_cast<size_t>(std::ceil(part * static_cast<double>(seconds.size())));
    return seconds[std::max<size_t>(rank, 1) - 1];
  };
  return {at(0.5), at(0.9), at(0.99)};
}

TimedInput::TimedInput(InputSource& source, int leaves, size_t most_micro_batches)
    : source_(source), leaves_(static_cast<size_t>(leaves)) {
  for (Leaf& leaf : leaves_) leaf.work.reserve(most_micro_batches);
}

Outcome TimedInput::Acquire(int leaf, MicroBatch& batch) noexcept {
  const Outcome outcome = source_.Acquire(leaf, batch);
  leaves_[static_cast<size_t>(leaf)].now = {Now(), 0, batch.count};
  return outcome;
}

void TimedInput::Release(int leaf) noexcept {
  Leaf& self = leaves_[static_cast<size_t>(leaf)];
  self.now.end = Now();
  if (self.work.size() < self.work.capacity()) self.work.push_back(self.now);
  source_.Release(leaf);
}

}  // namespace parax
