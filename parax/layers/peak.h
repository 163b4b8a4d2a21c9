#pragma once

namespace parax {

// Single-precision operations a second (a fused multiply-add is two) that this thread and its
// OpenMP team reach together on operands in registers, measured for about `seconds`: what kernels
// can be compared with. With all cores of interest busy at the same time it holds their clocks
// under load. Setup code.
double MeasurePeakFlops(double seconds);

}  // namespace parax
