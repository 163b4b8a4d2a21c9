#include "parax/engine/peaks.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "parax/engine/plan_record.h"
#include "parax/engine/workers.h"
#include "parax/layers/peak.h"
#include "parax/numa/bandwidth.h"

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

std::vector<std::vector<double>> CopyBandwidths(const std::vector<Seat>& seats,
                                                const std::vector<int>& domain_nodes) {
  std::vector<std::vector<double>> bandwidths;
  for (size_t domain = 0; domain < domain_nodes.size(); ++domain) {
    std::vector<Seat> here;
    std::ranges::copy_if(seats, std::back_inserter(here), [&](const Seat& seat) {
      return static_cast<size_t>(seat.domain) == domain;
    });
    bandwidths.push_back(here.empty() ? std::vector<double>()
                                      : CopyBandwidth(here, domain_nodes[domain], MachineKey(),
                                                      BandwidthCachePath()));
  }
  return bandwidths;
}

Peaks MeasurePeaks(const std::vector<Seat>& seats, const std::vector<int>& domain_nodes) {
  const auto instances = static_cast<double>(seats.size());
  Peaks peaks{.flops = MeasureFlops(seats) / instances};
  for (const std::vector<double>& bandwidth : CopyBandwidths(seats, domain_nodes)) {
    if (!bandwidth.empty()) peaks.bandwidth += bandwidth.back() / instances;
  }
  return peaks;
}

}  // namespace parax
