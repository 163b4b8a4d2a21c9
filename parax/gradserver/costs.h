#pragma once

#include <vector>

#include "parax/gradserver/server.h"

namespace parax {

// Least memory traffic of a slice.
struct SliceCosts {
  int owner = 0;     // among the domains that have leaves, in order: whose leaves run it
  double first = 0;  // bytes: reduction, with the update where there is one phase only
  double update = 0;
};

// What a server with these options does in an iteration, for simulation.
struct ServerCosts {
  bool two_phases = false;
  std::vector<int> bucket_of;                   // a parameter
  std::vector<std::vector<SliceCosts>> slices;  // a bucket
};
ServerCosts CostsOf(const ServerOptions& options);  // setup; throws Error

}  // namespace parax
