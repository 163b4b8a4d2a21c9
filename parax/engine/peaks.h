#pragma once

#include <vector>

#include "parax/numa/seat.h"
#include "parax/sched/profile.h"

namespace parax {

// Single-precision operations a second that all seats reach together, in registers. Takes half a
// second. Setup code.
double MeasureFlops(const std::vector<Seat>& seats);

// Of each domain: the bytes a second that its first 1, 2 ... seats copy at once; empty without
// seats. Measured once (about a second a domain), then kept in the user's cache folder.
// `domain_nodes`: OS NUMA nodes (-1: memory is not bound). Setup code; throws Error.
std::vector<std::vector<double>> CopyBandwidths(const std::vector<Seat>& seats,
                                                const std::vector<int>& domain_nodes);

// An instance's while all seats are busy. Setup code; throws Error.
Peaks MeasurePeaks(const std::vector<Seat>& seats, const std::vector<int>& domain_nodes);

}  // namespace parax
