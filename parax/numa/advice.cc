#include "parax/numa/advice.h"

#include <cpuid.h>
#include <numaif.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "parax/base/text.h"
#include "parax/numa/sysfs.h"

namespace parax {
namespace {

namespace fs = std::filesystem;

std::string Bytes(size_t bytes) { return HumanBytes(static_cast<double>(bytes)); }

std::string Plural(size_t n, const char* word) {
  return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s");
}

std::string Isa() {
  std::string isa = __builtin_cpu_supports("avx512f") != 0 ? "AVX-512"
                    : __builtin_cpu_supports("avx2") != 0  ? "AVX2"
                                                           : "no AVX2";
  if (__builtin_cpu_supports("avx512bf16") != 0) isa += ", bf16";
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kAmxBf16 = 1u << 22;  // leaf 7, EDX
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kAmxBf16) != 0) isa += ", AMX";
  return isa;
}

// The word in brackets: "always [madvise] never".
std::string Chosen(const std::string& text) {
  const size_t open = text.find('[');
  const size_t close = text.find(']', open);
  return close == std::string::npos ? std::string() : text.substr(open + 1, close - open - 1);
}

std::string Governor(const Topology& topology, const fs::path& root) {
  std::string found;
  for (const Core& core : topology.cores) {
    for (int pu : core.pus) {
      const std::string governor = SystemText(
          root / fmt::format("sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", pu));
      if (governor == "powersave") return governor;
      if (!governor.empty()) found = governor;
    }
  }
  return found;
}

// Containers often forbid mbind: try it on one page, on the first node we would use.
bool MbindDenied(int node) {
  constexpr size_t kPage = 4096;
  constexpr unsigned long kBits = 8 * sizeof(unsigned long);
  if (node < 0 || static_cast<unsigned long>(node) >= kBits) return false;
  void* page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  const unsigned long mask = 1ul << node;
  const bool denied = mbind(page, kPage, MPOL_BIND, &mask, kBits, 0) != 0;
  munmap(page, kPage);
  return denied;
}

std::string OpenMpBinding() {
  for (const char* name : {"OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "OMP_PLACES"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && std::string_view(value) != "false") {
      return fmt::format("{}={}", name, value);
    }
  }
  return {};
}

std::vector<int> PusOf(const Topology& topology, const std::vector<int>& cores) {
  std::vector<int> pus;
  for (int core : cores) {
    const auto& of_core = topology.cores[static_cast<size_t>(core)].pus;
    pus.insert(pus.end(), of_core.begin(), of_core.end());
  }
  return pus;
}

std::vector<int> AllPus(const Topology& topology) {
  std::vector<int> pus;
  for (const Domain& domain : topology.domains) {
    const std::vector<int> of_domain = PusOf(topology, domain.cores);
    pus.insert(pus.end(), of_domain.begin(), of_domain.end());
  }
  return pus;
}

void AdviseOnMemory(const Topology& topology, const SystemFacts& facts, std::vector<Advice>& out) {
  if (facts.transparent_pages == "never") {
    out.push_back({"transparent-huge-pages",
                   "transparent huge pages are 'never': 4 KB pages cost page faults and TLB misses",
                   "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"});
  }
  if (facts.huge_2m_total == 0 && facts.huge_1g_total == 0) {
    const size_t pages = topology.memory_limit_bytes / 2 >> 21;
    out.push_back({"huge-pages",
                   "no huge pages are reserved: transparent ones may run out as memory fragments "
                   "(the command reserves half the memory; the plan's predicted peak is enough)",
                   fmt::format("sudo sysctl vm.nr_hugepages={}", pages)});
  }
  if (facts.swap_bytes > 0) {
    out.push_back({"swap",
                   fmt::format("{} of swap are on: one swapped page stalls its instance, and all "
                               "others wait for that one",
                               Bytes(facts.swap_bytes)),
                   "sudo swapoff -a"});
  }
  if (topology.domains.size() < 2) return;  // what follows costs nothing on one node
  if (facts.mbind_denied) {
    out.push_back({"mbind",
                   "mbind is denied: memory lies where it is first touched and may end up remote",
                   "docker run --cap-add SYS_NICE ...   # or run outside of the container"});
  }
  if (facts.numa_balancing) {
    out.push_back({"numa-balancing",
                   "automatic NUMA balancing unmaps pages to see who uses them, for memory that is "
                   "placed already",
                   "sudo sysctl kernel.numa_balancing=0"});
  }
}

void AdviseOnCpus(const Topology& topology, const SystemFacts& facts, std::vector<Advice>& out) {
  if (facts.governor == "powersave") {
    out.push_back(
        {"governor", "the powersave governor keeps clocks low between bursts",
         "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"});
  }
  const auto cores = static_cast<double>(topology.cores.size());
  if (topology.cpu_quota < cores) {
    const bool v1 = topology.cpu_quota_file.ends_with("cfs_quota_us");
    out.push_back(
        {"quota",
         fmt::format("the CPU quota of {:.4g} CPUs leaves {:.4g} of {} cores unused "
                     "(containers: raise --cpus)",
                     topology.cpu_quota, cores - std::max(1.0, std::floor(topology.cpu_quota)),
                     cores),
         fmt::format("echo {} | sudo tee {}", v1 ? "-1" : "max", topology.cpu_quota_file)});
  }
  std::vector<int> shared;
  for (const Core& core : topology.cores) {
    if (static_cast<int>(core.pus.size()) < core.siblings) shared.push_back(core.pus.front());
  }
  if (!shared.empty()) {
    out.push_back(
        {"smt-share",
         fmt::format("the cores of CPUs {} have hardware threads that other processes may "
                     "use: the core's speed is shared with them",
                     CpuList(shared)),
         "echo off | sudo tee /sys/devices/system/cpu/smt/control"});
  }
  if (static_cast<int>(topology.cores.size()) < topology.machine_cores) {
    out.push_back(
        {"affinity",
         fmt::format("{} of the machine's {} cores may be used (CPUs {})", topology.cores.size(),
                     topology.machine_cores, CpuList(AllPus(topology))),
         fmt::format("taskset -c 0-{} parax ...   # if the cpuset allows them",
                     topology.machine_pus - 1)});
  }
  if (!facts.openmp_binding.empty()) {
    const std::string name = facts.openmp_binding.substr(0, facts.openmp_binding.find('='));
    out.push_back({"openmp-binding",
                   fmt::format("{} makes OpenMP bind the process before parax can: it may see one "
                               "core only",
                               facts.openmp_binding),
                   fmt::format("unset {}", name)});
  }
}

std::string PagesLine(const SystemFacts& facts) {
  std::string line = "memory pages: ";
  if (facts.huge_1g_free > 0) line += fmt::format("{} of 1 GB free, ", facts.huge_1g_free);
  if (facts.huge_2m_free > 0) line += fmt::format("{} of 2 MB free, ", facts.huge_2m_free);
  const bool small = facts.transparent_pages.empty() || facts.transparent_pages == "never";
  const bool reserved = facts.huge_1g_free + facts.huge_2m_free > 0;
  return line + (reserved ? "then " : "") + (small ? "4 KB pages" : "transparent huge pages");
}

}  // namespace

SystemFacts ReadSystemFacts(const Topology& topology, const TopologyOptions& options) {
  const fs::path& root = options.root;
  const fs::path mm = root / "sys/kernel/mm";
  const fs::path huge_2m = mm / "hugepages/hugepages-2048kB";
  const fs::path huge_1g = mm / "hugepages/hugepages-1048576kB";
  SystemFacts facts;
  facts.known = topology.this_machine || root != "/";
  if (!facts.known) return facts;
  facts.isa = Isa();
  facts.transparent_pages = Chosen(SystemText(mm / "transparent_hugepage/enabled"));
  facts.huge_2m_total = SystemNumber(huge_2m / "nr_hugepages");
  facts.huge_2m_free = SystemNumber(huge_2m / "free_hugepages");
  facts.huge_1g_total = SystemNumber(huge_1g / "nr_hugepages");
  facts.huge_1g_free = SystemNumber(huge_1g / "free_hugepages");
  facts.governor = Governor(topology, root);
  facts.swap_bytes = KilobytesOf(SystemText(root / "proc/meminfo"), "SwapTotal:");
  facts.mbind_denied = topology.this_machine && MbindDenied(topology.domains.front().os_node);
  facts.numa_balancing = SystemNumber(root / "proc/sys/kernel/numa_balancing") != 0;
  facts.openmp_binding = OpenMpBinding();
  return facts;
}

std::vector<Advice> Advise(const Topology& topology, const SystemFacts& facts) {
  std::vector<Advice> advice;
  AdviseOnCpus(topology, facts, advice);
  if (facts.known) AdviseOnMemory(topology, facts, advice);
  return advice;
}

TopologyReport MakeReport(const SeatRequest& request, const TopologyOptions& options) {
  TopologyReport report;
  report.topology = DetectTopology(options);
  report.plan = PlanSeats(report.topology, request);
  report.facts = ReadSystemFacts(report.topology, options);
  report.advice = Advise(report.topology, report.facts);
  return report;
}

std::vector<std::string> ReportLines(const TopologyReport& report) {
  const Topology& t = report.topology;
  const auto count = [](int n) { return static_cast<size_t>(n); };
  std::vector<std::string> lines;
  lines.push_back(fmt::format("found: {}{}", t.cpu_model,
                              t.this_machine ? "" : " (described by HWLOC_*, not this machine)"));
  lines.push_back(fmt::format(
      "  {}, {}, {}, {} of memory{}", Plural(count(t.sockets), "socket"),
      Plural(count(t.machine_cores), "core"), Plural(count(t.machine_pus), "hardware thread"),
      Bytes(t.memory_bytes), report.facts.known ? "; kernels for " + report.facts.isa : ""));
  for (const Domain& domain : t.domains) {
    lines.push_back(fmt::format("  NUMA node {}: {} usable (CPUs {}), {}", domain.os_node,
                                Plural(domain.cores.size(), "core"),
                                CpuList(PusOf(t, domain.cores)), Bytes(domain.memory_bytes)));
  }
  for (const std::string& note : t.notes) lines.push_back("  " + note);

  const size_t k = report.plan.seats.front().pus.size();
  lines.push_back(fmt::format("will use: {} of {}, one hardware thread a core",
                              Plural(report.plan.seats.size(), "instance"), Plural(k, "core")));
  for (size_t d = 0; d < t.domains.size(); ++d) {
    std::vector<int> pus;
    for (const Seat& seat : report.plan.seats) {
      if (static_cast<size_t>(seat.domain) == d)
        pus.insert(pus.end(), seat.pus.begin(), seat.pus.end());
    }
    lines.push_back(fmt::format("  NUMA node {}: {} on CPUs {}", t.domains[d].os_node,
                                Plural(pus.size() / k, "instance"),
                                pus.empty() ? "-" : CpuList(pus)));
  }
  if (!report.plan.reserved_pus.empty()) {
    lines.push_back(fmt::format("  input decoding: CPUs {}", CpuList(report.plan.reserved_pus)));
  }
  for (const std::string& note : report.plan.notes) lines.push_back("  " + note);
  lines.push_back(fmt::format("  memory: up to {}, {}", Bytes(t.memory_limit_bytes),
                              report.facts.mbind_denied ? "placed by first touch (mbind is denied)"
                                                        : "bound to the instance's node"));
  if (report.facts.known) lines.push_back("  " + PagesLine(report.facts));
  return lines;
}

std::vector<std::string> AdviceLines(const TopologyReport& report) {
  if (report.advice.empty()) return {"advice: nothing to gain from the system's settings"};
  std::vector<std::string> lines;
  for (const Advice& advice : report.advice) {
    lines.push_back(fmt::format("advice ({}): {}", advice.name, advice.loss));
    lines.push_back("  " + advice.command);
  }
  return lines;
}

std::string ReportJson(const TopologyReport& report) {
  using Json = nlohmann::ordered_json;
  const Topology& t = report.topology;
  const SystemFacts& f = report.facts;
  Json json;
  json["cpu_model"] = t.cpu_model;
  json["this_machine"] = t.this_machine;
  json["isa"] = f.isa;
  json["sockets"] = t.sockets;
  json["machine_cores"] = t.machine_cores;
  json["machine_pus"] = t.machine_pus;
  json["cpu_quota"] = std::isfinite(t.cpu_quota) ? Json(t.cpu_quota) : Json(nullptr);
  json["memory_bytes"] = t.memory_bytes;
  json["memory_limit_bytes"] = t.memory_limit_bytes;
  json["domains"] = Json::array();
  for (const Domain& domain : t.domains) {
    Json cores = Json::array();
    for (int core : domain.cores) cores.push_back(t.cores[static_cast<size_t>(core)].pus);
    json["domains"].push_back(
        {{"node", domain.os_node}, {"memory_bytes", domain.memory_bytes}, {"cores", cores}});
  }
  json["seats"] = Json::array();
  for (const Seat& seat : report.plan.seats) {
    json["seats"].push_back({{"domain", seat.domain}, {"pus", seat.pus}});
  }
  json["reserved_pus"] = report.plan.reserved_pus;
  json["notes"] = t.notes;
  for (const std::string& note : report.plan.notes) json["notes"].push_back(note);
  json["pages"] = {{"transparent", f.transparent_pages},
                   {"huge_2m_total", f.huge_2m_total},
                   {"huge_2m_free", f.huge_2m_free},
                   {"huge_1g_total", f.huge_1g_total},
                   {"huge_1g_free", f.huge_1g_free}};
  json["governor"] = f.governor;
  json["swap_bytes"] = f.swap_bytes;
  json["mbind_denied"] = f.mbind_denied;
  json["advice"] = Json::array();
  for (const Advice& advice : report.advice) {
    json["advice"].push_back(
        {{"name", advice.name}, {"loss", advice.loss}, {"command", advice.command}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace parax
