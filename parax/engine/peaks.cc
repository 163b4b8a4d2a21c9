#include "parax/engine/peaks.h"

#include <numeric>

#include "parax/engine/workers.h"
#include "parax/layers/peak.h"

namespace parax {
namespace {

constexpr double kSeconds = 0.5;

}  // namespace

double MeasureFlops(const std::vector<Seat>& seats) {
  Workers workers(seats);
  std::vector<double> flops(seats.size());
  workers.Run([&](int leaf) { flops[static_cast<size_t>(leaf)] = MeasurePeakFlops(kSeconds); });
  return std::accumulate(flops.begin(), flops.end(), 0.0);
}

}  // namespace parax
