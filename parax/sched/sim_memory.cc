#include "parax/sched/sim_memory.h"

#include <algorithm>
#include <cmath>

namespace parax {

BandwidthCurve::BandwidthCurve(std::vector<double> of_cores) : of_cores_(std::move(of_cores)) {
  for (size_t i = 1; i < of_cores_.size(); ++i) {
    const double most = static_cast<double>(i + 1) * of_cores_[0];
    of_cores_[i] = std::min(std::max(of_cores_[i], of_cores_[i - 1]), most);
  }
}

double BandwidthCurve::At(double cores) const {
  if (cores >= static_cast<double>(of_cores_.size())) return most();
  const auto below = static_cast<size_t>(cores);
  const double low = below == 0 ? 0 : of_cores_[below - 1];
  return low + (cores - std::floor(cores)) * (of_cores_[below] - low);
}

void ShareBandwidth(const BandwidthCurve& curve, std::vector<Demand>& demands) {
  double asked = 0;
  for (Demand& demand : demands) {
    asked += demand.bytes;
    demand.granted = demand.bytes;
  }
  double left = curve.At(asked / curve.one());
  if (asked <= left) return;
  double cores = 0;
  for (Demand& demand : demands) {
    cores += demand.cores;
    demand.granted = -1;  // not known yet
  }
  // Who asks for less than the level keeps what he asks for, which raises it for the others.
  for (bool settled = false; !settled && cores > 0;) {
    settled = true;
    const double level = left / cores;
    for (Demand& demand : demands) {
      if (demand.granted >= 0 || demand.bytes > level * demand.cores) continue;
      demand.granted = demand.bytes;
      left -= demand.bytes;
      cores -= demand.cores;
      settled = false;
    }
  }
  for (Demand& demand : demands) {
    if (demand.granted < 0) demand.granted = std::max(0.0, left) * demand.cores / cores;
  }
}

}  // namespace parax
