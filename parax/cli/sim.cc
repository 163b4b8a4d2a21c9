#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "parax/base/error.h"
#include "parax/base/log.h"
#include "parax/cli/commands.h"
#include "parax/cli/machine_file.h"
#include "parax/cli/train_setup.h"
#include "parax/engine/peaks.h"
#include "parax/engine/plan_record.h"
#include "parax/engine/sim_model.h"
#include "parax/numa/bandwidth.h"

namespace parax {
namespace {

constexpr int64_t kImagesPerCore = 16;

struct Row {
  SimCase run;
  SimSetup setup;
  SimResult result;
  double images_per_s = 0;
};

Machine MachineOf(const Options& options, int cores_per_instance) {
  Options all = options;
  all.schedule_policy = "free";
  all.instances = 0;
  all.cores_per_instance = cores_per_instance;
  return PlanMachine(all);
}

// The machine at hand, as measured.
MachineModel ThisMachine(const Machine& machine) {
  const Topology& topology = machine.topology;
  MachineModel model;
  model.name = topology.cpu_model;
  model.sockets = std::max(1, topology.sockets);
  std::vector<std::vector<Seat>> domains(topology.domains.size());
  for (const Seat& seat : machine.plan.seats) {
    domains[static_cast<size_t>(seat.domain)].push_back(seat);
  }
  std::erase_if(domains, [](const auto& seats) { return seats.empty(); });
  for (const auto& seats : domains) {
    if (seats.size() != domains[0].size()) {
      FailUsage("parax sim needs as many usable cores in every NUMA domain, not {} and {}",
                domains[0].size(), seats.size());
    }
  }
  model.domains = static_cast<int>(domains.size());
  model.cores_per_domain = static_cast<int>(domains[0].size());
  const auto domain = static_cast<size_t>(domains[0][0].domain);
  model.bandwidth =
      CopyBandwidth(domains[0], machine.domain_nodes[domain], MachineKey(), BandwidthCachePath());
  model.core_flops = MeasureFlops(machine.plan.seats) / model.cores();
  const long third = sysconf(_SC_LEVEL3_CACHE_SIZE), second = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (third > 0 && second > 0) {
    model.cache_per_core =
        static_cast<double>(second) + static_cast<double>(third) / model.cores_per_domain;
  }
  return model;
}

std::vector<SchedulePolicy> Policies(const Options& options) {
  std::vector<SchedulePolicy> policies;
  for (const std::string& name : SchedulePolicyNames()) {
    if (options.sim_policy == "all" || options.sim_policy == name) {
      policies.push_back(ParseSchedulePolicy(name));
    }
  }
  return policies;
}

// Every run that is asked for; with --sweep every number of cores an instance that fills a domain.
std::vector<SimCase> Cases(const Options& options, const MachineModel& target) {
  const int most = target.cores_per_domain;
  const int asked = options.cores_per_instance == 0 ? most : options.cores_per_instance;
  if (asked > most) {
    FailUsage("--cores-per-instance is {}; a NUMA domain of {} has {}", asked, target.name, most);
  }
  std::vector<SimCase> cases;
  for (const SchedulePolicy policy : Policies(options)) {
    for (int cores = 1; cores <= most; ++cores) {
      const bool barriered = policy == SchedulePolicy::kBarriered;
      if (barriered ? cores != most : options.sweep ? most % cores != 0 : cores != asked) continue;
      const int fit = target.domains * (most / cores);
      const int instances = options.instances == 0 || barriered ? fit : options.instances;
      if (instances > fit) {
        FailUsage("--instances is {}; into {} fit {} of {} cores", instances, target.name, fit,
                  cores);
      }
      cases.push_back({policy, instances, cores, options.gate, options.seed});
    }
  }
  return cases;
}

// What a core takes through in a step, and at once.
struct Images {
  int64_t step = kImagesPerCore, at_once = kImagesPerCore;
};
Images ImagesPerCore(const Options& options, const std::vector<SimCase>& cases) {
  Images images;
  if (options.batch) {
    const int cores = cases[0].instances * cases[0].cores_per_instance;
    for (const SimCase& run : cases) {
      const int others = run.instances * run.cores_per_instance;
      if (*options.batch % others == 0 && others == cores) continue;
      FailUsage("--batch is {}; every core must get as many images: a multiple of {}",
                *options.batch, std::max(cores, others));
    }
    images.step = images.at_once = *options.batch / cores;
  }
  if (options.bn_group) images.at_once = *options.bn_group;
  if (images.step % images.at_once != 0) {
    FailUsage("--bn-group is {}; a core's share of the batch, {}, must be a multiple of it",
              *options.bn_group, images.step);
  }
  return images;
}

MeasuredNetwork MeasureHere(const Options& options, const MachineModel& here, const Images& images,
                            int cores_per_instance) {
  Options train = options;
  train.data = "synthetic";
  train.schedule_policy = "free";
  train.epochs = 1;
  train.cores_per_instance = cores_per_instance;
  train.instances = here.domains * (here.cores_per_domain / cores_per_instance);
  train.batch = images.step * cores_per_instance * train.instances;
  train.bn_group = images.at_once * cores_per_instance;
  TrainSetup setup = ResolveTraining(train);
  MemoryEstimate memory = CheckedMemory(setup);
  if (options.tune == "auto") ChoosePlan(setup, memory);
  Info("measuring ops of {} on {} instance{} of {} core{} here ...", setup.config.model.name,
       train.instances, train.instances == 1 ? "" : "s", cores_per_instance,
       cores_per_instance == 1 ? "" : "s");
  return MeasureNetwork(setup.graph, setup.trainer, here, options.defer_memory,
                        options.seconds / 2);
}

void Print(const Row& row, double barriered) {
  const SimResult& r = row.result;
  const double all = r.in_ops + r.in_slices + r.at_gate + r.for_updates + r.for_start;
  const auto percent = [&](double part) { return all > 0 ? 100 * part / all : 0; };
  const bool gated =
      row.run.policy == SchedulePolicy::kGate || row.run.policy == SchedulePolicy::kGateDefer;
  fmt::print("{:<11} {:>9} {:>6} {:>5} {:>12.1f} {:>9} {:>7.1f} {:>7.1f} {:>7.1f} {:>8.1f}\n",
             SchedulePolicyNames()[static_cast<size_t>(row.run.policy)], row.run.instances,
             row.run.cores_per_instance, gated ? std::to_string(row.setup.gate_limit) : "",
             row.images_per_s,
             barriered > 0 ? fmt::format("{:.2f}", row.images_per_s / barriered) : "",
             percent(r.in_ops), percent(r.in_slices), percent(r.at_gate), percent(r.for_updates));
}

nlohmann::ordered_json ToJson(const Row& row) {
  const SimResult& r = row.result;
  return {{"policy", SchedulePolicyNames()[static_cast<size_t>(row.run.policy)]},
          {"instances", row.run.instances},
          {"cores_per_instance", row.run.cores_per_instance},
          {"gate", row.setup.gate_limit},
          {"images_per_s", row.images_per_s},
          {"seconds_per_step", r.seconds},
          {"in_ops", r.in_ops},
          {"in_slices", r.in_slices},
          {"at_gate", r.at_gate},
          {"for_updates", r.for_updates},
          {"deferred", r.deferred},
          {"most_gbytes_per_s", r.most_bandwidth / 1e9}};
}

}  // namespace

int RunSim(const Options& options) {
  SetQuiet(options.quiet || options.json);
  if (options.model.empty()) FailUsage("--model is missing, such as --model resnet50");
  const bool here_only = options.machine == "this";
  MachineModel target;
  if (!here_only) target = ReadMachine(options.machine);
  const Machine machine = MachineOf(options, 1);
  const MachineModel here = ThisMachine(machine);
  if (here_only) target = here;
  const std::vector<SimCase> cases = Cases(options, target);
  const Images images = ImagesPerCore(options, cases);

  // Here every number of cores is measured; for another machine one core, and how threads speed it
  // up.
  std::map<int, MeasuredNetwork> measured;
  const auto measure = [&](int cores) -> MeasuredNetwork& {
    const auto found = measured.find(cores);
    if (found != measured.end()) return found->second;
    return measured.emplace(cores, MeasureHere(options, here, images, cores)).first->second;
  };
  std::vector<Row> rows;
  double barriered = 0;
  for (const SimCase& run : cases) {
    MeasuredNetwork& network = measure(here_only ? run.cores_per_instance : 1);
    if (!here_only && run.cores_per_instance > 1 && network.serial.ops.empty()) {
      if (here.cores_per_domain < 2) {
        Fail(
            "how ops speed up with threads can't be measured on one core: leave out policy "
            "barriered, --sweep and --cores-per-instance");
      }
      network.serial = FindSerialParts(network, measure(here.cores_per_domain));
    }
    Row row{run, SetupFor(network, target, run), {}, 0};
    row.result = Simulate(row.setup);
    row.images_per_s = static_cast<double>(images.step * run.instances * run.cores_per_instance) /
                       row.result.seconds;
    if (run.policy == SchedulePolicy::kBarriered) barriered = row.images_per_s;
    rows.push_back(std::move(row));
  }

  if (options.json) {
    nlohmann::ordered_json results = nlohmann::json::array();
    for (const Row& row : rows) results.push_back(ToJson(row));
    const nlohmann::ordered_json json = {{"simulated", true},
                                         {"model", options.model},
                                         {"machine", target.name},
                                         {"measured_on", here.name},
                                         {"images_per_core", images.step},
                                         {"images_at_once", images.at_once},
                                         {"jitter", measured.begin()->second.profile.jitter},
                                         {"results", results}};
    fmt::print("{}\n", json.dump());
    return 0;
  }
  fmt::print("SIMULATED: {} training on {}, {} images a core and step; op times from {}\n",
             options.model, target.name, images.step, here.name);
  fmt::print("{:<11} {:>9} {:>6} {:>5} {:>12} {:>9} {:>7} {:>7} {:>7} {:>8}\n", "policy",
             "instances", "cores", "gate", "images/s", "barriered", "% ops", "slices", "gate",
             "updates");
  for (const Row& row : rows) Print(row, barriered);
  return 0;
}

}  // namespace parax
