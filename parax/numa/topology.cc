#include "parax/numa/topology.h"

#include <hwloc.h>
#include <omp.h>

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

#include "parax/base/error.h"
#include "parax/base/text.h"
#include "parax/numa/limits.h"
#include "parax/numa/sysfs.h"

namespace parax {
namespace {

class HwlocTopology {
 public:
  HwlocTopology() {
    if (hwloc_topology_init(&topology_) != 0) Fail("hwloc cannot be initialised");
    // What we may not use is loaded too, so that the report can say what the machine has.
    hwloc_topology_set_flags(topology_, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    if (hwloc_topology_load(topology_) != 0) {
      hwloc_topology_destroy(topology_);
      Fail("hwloc cannot read this machine's topology (or HWLOC_SYNTHETIC, HWLOC_XMLFILE)");
    }
  }
  ~HwlocTopology() { hwloc_topology_destroy(topology_); }
  HwlocTopology(const HwlocTopology&) = delete;
  HwlocTopology& operator=(const HwlocTopology&) = delete;

  hwloc_topology_t get() const { return topology_; }
  int Count(hwloc_obj_type_t type) const {
    return std::max(0, hwloc_get_nbobjs_by_type(topology_, type));
  }
  std::vector<hwloc_obj_t> Objects(hwloc_obj_type_t type) const {
    std::vector<hwloc_obj_t> objects;
    for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_obj_by_type(topology_, type, o)) != nullptr;)
      objects.push_back(o);
    return objects;
  }

 private:
  hwloc_topology_t topology_ = nullptr;
};

using Bitmap = std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)>;

Bitmap Copy(hwloc_const_bitmap_t from) { return {hwloc_bitmap_dup(from), hwloc_bitmap_free}; }

std::vector<int> Members(hwloc_const_bitmap_t set) {
  std::vector<int> members;
  for (int i = -1; (i = hwloc_bitmap_next(set, i)) != -1;) members.push_back(i);
  return members;
}

// What the affinity mask allows: the real one, or the one that `root` shows. All when unknown.
Bitmap Affinity(const HwlocTopology& hwloc, const std::filesystem::path& root) {
  Bitmap mask(hwloc_bitmap_alloc_full(), hwloc_bitmap_free);
  if (root != "/") {
    const std::string status = SystemText(root / "proc/self/status");
    const std::string list(FieldOf(status, "Cpus_allowed_list:"));
    if (!list.empty() && hwloc_bitmap_list_sscanf(mask.get(), list.c_str()) != 0) {
      Fail("cannot understand Cpus_allowed_list '{}'", list);
    }
  } else if (hwloc_topology_is_thissystem(hwloc.get()) != 0 &&
             hwloc_get_cpubind(hwloc.get(), mask.get(), HWLOC_CPUBIND_THREAD) != 0) {
    hwloc_bitmap_fill(mask.get());
  }
  // Under OMP_PROC_BIND libgomp has bound this thread to one place before main; the places together
  // are what the process may use.
  for (int place = 0; root == "/" && place < omp_get_num_places(); ++place) {
    std::vector<int> pus(static_cast<size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, pus.data());
    for (const int pu : pus) hwloc_bitmap_set(mask.get(), static_cast<unsigned>(pu));
  }
  return mask;
}

// The hardware threads we may use; says what takes the others away.
Bitmap AllowedPus(const HwlocTopology& hwloc, const std::filesystem::path& root,
                  std::vector<std::string>& notes) {
  const hwloc_const_bitmap_t online = hwloc_topology_get_topology_cpuset(hwloc.get());
  Bitmap offline = Copy(hwloc_topology_get_complete_cpuset(hwloc.get()));
  hwloc_bitmap_andnot(offline.get(), offline.get(), online);
  if (hwloc_bitmap_iszero(offline.get()) == 0) {
    notes.push_back(fmt::format("CPUs {} are offline", CpuList(Members(offline.get()))));
  }
  Bitmap allowed = Copy(hwloc_topology_get_allowed_cpuset(hwloc.get()));
  hwloc_bitmap_and(allowed.get(), allowed.get(), online);
  const int machine = hwloc_bitmap_weight(online);
  const int cpuset = hwloc_bitmap_weight(allowed.get());
  if (cpuset < machine) {
    notes.push_back(fmt::format("the cpuset allows {} of {} CPUs: {}", cpuset, machine,
                                CpuList(Members(allowed.get()))));
  }
  const Bitmap mask = Affinity(hwloc, root);
  hwloc_bitmap_and(allowed.get(), allowed.get(), mask.get());
  const int usable = hwloc_bitmap_weight(allowed.get());
  if (usable == 0) Fail("the affinity mask and the cpuset leave no CPU to run on");
  if (usable < cpuset) {
    notes.push_back(fmt::format("the affinity mask (taskset) allows {} of {} CPUs: {}", usable,
                                cpuset, CpuList(Members(allowed.get()))));
  }
  return allowed;
}

// The node whose memory is nearest to the core: of those that hold memory the one shared by the
// fewest CPUs. The lowest number breaks ties: Linux numbers DRAM before HBM and CXL memory.
hwloc_obj_t NearestNode(const std::vector<hwloc_obj_t>& nodes, hwloc_obj_t core) {
  const auto rank = [](hwloc_obj_t node) {
    return std::tuple(node->attr->numanode.local_memory == 0, hwloc_bitmap_weight(node->cpuset),
                      node->os_index);
  };
  hwloc_obj_t best = nullptr;
  for (hwloc_obj_t node : nodes) {
    if (hwloc_bitmap_isincluded(core->cpuset, node->cpuset) == 0) continue;
    if (best == nullptr || rank(node) < rank(best)) best = node;
  }
  if (best == nullptr) Fail("CPU {} belongs to no NUMA node", hwloc_bitmap_first(core->cpuset));
  return best;
}

void FillCores(const HwlocTopology& hwloc, hwloc_const_bitmap_t allowed, Topology& topology) {
  const auto nodes = hwloc.Objects(HWLOC_OBJ_NUMANODE);
  const bool has_cores = hwloc.Count(HWLOC_OBJ_CORE) > 0;  // some virtual machines hide them
  const auto cores = hwloc.Objects(has_cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU);
  topology.machine_cores = static_cast<int>(cores.size());
  std::map<unsigned, size_t> domain_of_node;
  std::map<unsigned, bool> has_cpus;
  for (hwloc_obj_t object : cores) {
    const hwloc_obj_t node = NearestNode(nodes, object);
    has_cpus[node->os_index] = true;
    const Bitmap usable = Copy(object->cpuset);
    hwloc_bitmap_and(usable.get(), usable.get(), allowed);
    if (hwloc_bitmap_iszero(usable.get()) != 0) continue;
    const auto [found, added] = domain_of_node.try_emplace(node->os_index, topology.domains.size());
    if (added) {
      topology.domains.push_back(
          {static_cast<int>(node->os_index), node->attr->numanode.local_memory, {}});
    }
    Domain& domain = topology.domains[found->second];
    domain.cores.push_back(static_cast<int>(topology.cores.size()));
    topology.cores.push_back({Members(usable.get()), static_cast<int>(found->second),
                              hwloc_bitmap_weight(object->cpuset)});
  }
  const hwloc_const_bitmap_t memory_allowed = hwloc_topology_get_allowed_nodeset(hwloc.get());
  for (hwloc_obj_t node : nodes) {
    const unsigned number = node->os_index;
    if (!has_cpus[number] && node->attr->numanode.local_memory > 0) {
      const double bytes = static_cast<double>(node->attr->numanode.local_memory);
      topology.notes.push_back(fmt::format("NUMA node {} ({}) has memory but no CPUs: not used",
                                           number, HumanBytes(bytes)));
    }
    if (domain_of_node.contains(number) && hwloc_bitmap_isset(memory_allowed, number) == 0) {
      topology.notes.push_back(fmt::format(
          "the cpuset forbids the memory of NUMA node {}: its instances use remote memory",
          number));
    }
  }
}

void ApplyLimits(const std::filesystem::path& root, Topology& topology) {
  const CgroupLimits limits = ReadCgroupLimits(root);
  topology.cpu_quota = limits.cpus;
  topology.cpu_quota_file = limits.cpus_file;
  if (!limits.cpus_file.empty()) {
    topology.notes.push_back(
        fmt::format("the CPU quota is {:.4g} CPUs ({})", limits.cpus, limits.cpus_file));
  }
  if (limits.memory_bytes < topology.memory_bytes) {
    topology.memory_limit_bytes = limits.memory_bytes;
    topology.notes.push_back(fmt::format("the memory limit is {} ({})",
                                         HumanBytes(static_cast<double>(limits.memory_bytes)),
                                         limits.memory_file));
  }
}

std::string CpuModel(const HwlocTopology& hwloc) {
  for (hwloc_obj_type_t type : {HWLOC_OBJ_PACKAGE, HWLOC_OBJ_MACHINE}) {
    for (hwloc_obj_t object : hwloc.Objects(type)) {
      const char* model = hwloc_obj_get_info_by_name(object, "CPUModel");
      if (model != nullptr) return model;
    }
  }
  return "unknown CPU";
}

}  // namespace

std::string CpuList(std::vector<int> pus) {
  std::sort(pus.begin(), pus.end());
  std::string list;
  for (size_t i = 0; i < pus.size();) {
    const int stride = i + 1 < pus.size() ? pus[i + 1] - pus[i] : 1;
    size_t last = i;
    while (last + 1 < pus.size() && pus[last + 1] - pus[last] == stride) ++last;
    if (stride > 1 && last < i + 2) last = i;  // two numbers make no series
    if (!list.empty()) list += ',';
    list += fmt::format("{}", pus[i]);
    if (last > i) list += fmt::format("-{}", pus[last]);
    if (last > i && stride > 1) list += fmt::format(":{}", stride);
    i = last + 1;
  }
  return list;
}

Topology DetectTopology(const TopologyOptions& options) {
  const HwlocTopology hwloc;
  Topology topology;
  topology.this_machine = hwloc_topology_is_thissystem(hwloc.get()) != 0;
  topology.cpu_model = CpuModel(hwloc);
  topology.sockets = std::max(1, hwloc.Count(HWLOC_OBJ_PACKAGE));
  topology.machine_pus = hwloc.Count(HWLOC_OBJ_PU);
  topology.memory_bytes = hwloc_get_root_obj(hwloc.get())->total_memory;
  topology.memory_limit_bytes = topology.memory_bytes;
  const Bitmap allowed = AllowedPus(hwloc, options.root, topology.notes);
  FillCores(hwloc, allowed.get(), topology);
  // This machine's control groups say nothing about a machine that is only described.
  if (topology.this_machine || options.root != "/") ApplyLimits(options.root, topology);
  return topology;
}

}  // namespace parax
