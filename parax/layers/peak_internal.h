#pragma once

#include <cstdint>

namespace parax {

// Runs multiply-adds `rounds` times on independent registers; returns what they add up to, so that
// none is left out.
struct PeakLoop {
  float (*run)(int64_t rounds);
  double flops_a_round;
};
extern const PeakLoop kPeakAvx2, kPeakAvx512;

}  // namespace parax
