#include "parax/layers/peak.h"

#include <algorithm>
#include <chrono>

#include "parax/base/isa.h"
#include "parax/layers/peak_internal.h"

namespace parax {

double MeasurePeakFlops(double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kRounds = 1 << 16;
  const PeakLoop& loop = CurrentIsa() == Isa::kAvx512 ? kPeakAvx512 : kPeakAvx2;
  double total = 0;
#pragma omp parallel reduction(+ : total)
  {
    // The best of ten parts: clocks rise at first, and a disturbance is no property of the core.
    double best = 0;
    for (int part = 0; part < 10; ++part) {
      int64_t runs = 0;
      volatile float kept = 0;
      const auto begin = Clock::now();
      double elapsed = 0;
      while (elapsed < seconds / 10) {
        kept = loop.run(kRounds);
        ++runs;
        elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
      }
      (void)kept;
      best = std::max(best, static_cast<double>(runs * kRounds) * loop.flops_a_round / elapsed);
    }
    total += best;
  }
  return total;
}

}  // namespace parax
