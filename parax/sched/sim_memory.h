#pragma once

#include <vector>

namespace parax {

// Bytes a second that a domain's memory gives to so many copying cores.
class BandwidthCurve {
 public:
  // `of_cores`: of 1, 2 ... cores at once, each above 0. What more cores would lose is not
  // modelled, nor that a core moves more beside others than alone: the curve never falls, and never
  // lies above cores x the first value.
  explicit BandwidthCurve(std::vector<double> of_cores);

  double one() const { return of_cores_[0]; }
  double most() const { return of_cores_.back(); }
  // Between whole numbers along the straight line, from 0 at 0; beyond the last as that.
  double At(double cores) const;

 private:
  std::vector<double> of_cores_;
};

// What one of the works that run at once in a domain asks of its memory.
struct Demand {
  double bytes = 0;    // a second, with nobody else there
  double cores = 1;    // that ask for it together
  double granted = 0;  // set by ShareBandwidth
};

// Grants each demand what it asks for while that is together no more than the curve has for so many
// cores' worth of demand (the sum over what one core reaches alone); else splits that much: level
// by core, nobody more than asked for.
void ShareBandwidth(const BandwidthCurve& curve, std::vector<Demand>& demands);

}  // namespace parax
