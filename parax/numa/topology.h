#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

namespace parax {

// A physical core this process may use: its hardware threads (PUs, OS numbers) that the affinity
// mask and cpuset allow, lowest first. Never empty.
struct Core {
  std::vector<int> pus;
  int domain = 0;    // index into Topology::domains
  int siblings = 1;  // hardware threads of the core, allowed or not: others may run on the rest
};

// A NUMA domain that holds at least one usable core. Memory-only nodes (CXL, HBM) are listed in the
// notes and get no instances.
struct Domain {
  int os_node = 0;
  size_t memory_bytes = 0;
  std::vector<int> cores;  // indices into Topology::cores
};

struct Topology {
  std::string cpu_model;
  int sockets = 1;
  int machine_cores = 1;  // physical cores of the machine, usable or not
  int machine_pus = 1;
  std::vector<Core> cores;
  std::vector<Domain> domains;
  double cpu_quota = std::numeric_limits<double>::infinity();  // cgroup limit, in CPUs
  std::string cpu_quota_file;                                  // where it was read; "" without one
  size_t memory_bytes = 0;                                     // of the machine
  size_t memory_limit_bytes = 0;   // least of the machine's memory and the cgroups' limits
  std::vector<std::string> notes;  // a line each: what restricts us and where it was read
  bool this_machine = true;        // false: from HWLOC_SYNTHETIC or HWLOC_XMLFILE, nothing is bound
};

// "0-27,56-83"; "0-54:2" for every second one: as taskset -c reads it.
std::string CpuList(std::vector<int> pus);

struct TopologyOptions {
  // Stands before /sys and /proc when limits are read (and then the affinity mask is read there,
  // from /proc/self/status): lets tests inject them.
  std::filesystem::path root = "/";
};

// What hwloc finds, less what affinity mask, cpuset, offline CPUs and cgroup v1/v2 forbid.
// Honours HWLOC_SYNTHETIC and HWLOC_XMLFILE (planning tests): then nothing is bound.
// Throws Error when no core is left.
Topology DetectTopology(const TopologyOptions& options = {});

}  // namespace parax
