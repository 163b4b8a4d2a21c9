#pragma once

#include <vector>

#include "parax/numa/seat.h"

namespace parax {

// Single-precision operations a second that all seats reach together, in registers. Takes half a
// second. Setup code.
double MeasureFlops(const std::vector<Seat>& seats);

}  // namespace parax
