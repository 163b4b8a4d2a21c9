#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "parax/numa/seat.h"
#include "parax/numa/topology.h"

namespace parax {

// What the system's settings say about memory and clocks; read below TopologyOptions::root.
struct SystemFacts {
  bool known = false;             // false for a machine that is only described: all below is empty
  std::string isa;                // "AVX-512, bf16": of the CPU that runs us
  std::string transparent_pages;  // "always", "madvise", "never"; "" when unknown
  size_t huge_2m_total = 0, huge_2m_free = 0;  // reserved pages, in pages
  size_t huge_1g_total = 0, huge_1g_free = 0;
  std::string governor;  // of the usable CPUs, "powersave" if any has it; "" when unknown
  size_t swap_bytes = 0;
  bool mbind_denied = false;
  bool numa_balancing = false;
  std::string openmp_binding;  // "OMP_PROC_BIND=true" or the like; "" when unset
};

SystemFacts ReadSystemFacts(const Topology& topology, const TopologyOptions& options = {});

// A setting that costs speed or memory, and the shell command that changes it.
struct Advice {
  std::string name;  // a short key: "transparent-huge-pages", "governor", ...
  std::string loss;
  std::string command;
};

std::vector<Advice> Advise(const Topology& topology, const SystemFacts& facts);

// What `parax topo` shows.
struct TopologyReport {
  Topology topology;
  SeatPlan plan;
  SystemFacts facts;
  std::vector<Advice> advice;
};

// Throws as DetectTopology and PlanSeats do.
TopologyReport MakeReport(const SeatRequest& request = {}, const TopologyOptions& options = {});

std::vector<std::string> ReportLines(const TopologyReport& report);  // found, used, why
std::vector<std::string> AdviceLines(
    const TopologyReport& report);                     // one loss and its command each
std::string ReportJson(const TopologyReport& report);  // all of it, indented

}  // namespace parax
