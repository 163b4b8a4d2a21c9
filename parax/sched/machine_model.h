#pragma once

#include <string>
#include <vector>

namespace parax {

// A machine as the simulator sees it.
struct MachineModel {
  std::string name;
  int sockets = 1;
  int domains = 1;  // NUMA domains, all alike
  int cores_per_domain = 1;
  double core_flops = 0;          // single-precision operations a second, with all cores at work
  std::vector<double> bandwidth;  // of a domain, bytes a second: copying on 1, 2 ... cores
  double remote_factor = 1;       // time of a byte of another domain's memory over one's own
  double cache_per_core = 0;  // bytes: second level, and a core's part of the third; 0: not known
  int cores() const { return domains * cores_per_domain; }
};

}  // namespace parax
