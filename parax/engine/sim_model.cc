#include "parax/engine/sim_model.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "parax/base/error.h"
#include "parax/engine/overlap.h"
#include "parax/engine/plan_buckets.h"
#include "parax/gradserver/costs.h"

namespace parax {
namespace {

int Threads(const MeasuredNetwork& measured) {
  return static_cast<int>(measured.options.seats[0].pus.size());
}

// Instances of the measured run in a domain.
int Together(const MeasuredNetwork& measured) {
  return std::max<int>(1,
                       static_cast<int>(measured.options.seats.size()) / measured.machine.domains);
}

// Turns what was measured here into work on the target.
class Scaling {
 public:
  Scaling(const MeasuredNetwork& measured, const MachineModel& target, int cores)
      : threads_(Threads(measured)),
        together_(Together(measured)),
        cores_(cores),
        here_(measured.machine.bandwidth),
        speed_(measured.machine.core_flops / target.core_flops) {
    const double here = measured.machine.cache_per_core;
    if (here > 0 && target.cache_per_core > 0) {
      uncached_ = std::clamp(1 - target.cache_per_core / here, 0.0, 1.0);
    }
  }

  // `bytes`: least traffic by the plan. No more came from memory than it could give in the time;
  // the rest came from caches, and does so on the target as far as it has them.
  SimWork Op(const BusyTimes& times, double bytes, double serial) const {
    SimWork work = Here(times, bytes, threads_);
    const double wider = static_cast<double>(cores_) / threads_;
    const double slower = speed_ * (serial * wider + 1 - serial);
    work.seconds *= slower;
    work.crowded_seconds *= slower;
    work.bytes += (std::max(bytes, work.bytes) - work.bytes) * uncached_;
    work.bytes *= wider;
    work.cores = cores_;
    return work;
  }
  // A slice runs on one core. `remote`: time of its bytes over that of the domain's own.
  SimWork Slice(const BusyTimes& of_a_byte, double bytes, double remote) const {
    SimWork work = Here(of_a_byte, 1, 1);
    work.seconds *= speed_ * bytes;
    work.crowded_seconds *= speed_ * bytes;
    work.bytes = (work.bytes + (1 - work.bytes) * uncached_) * bytes * remote;
    return work;
  }

 private:
  SimWork Here(const BusyTimes& times, double bytes, int cores) const {
    const double share = here_.At(together_ * cores) / together_;
    SimWork work{.seconds = times.alone, .crowded_seconds = times.alone};
    work.bytes = std::min({bytes, times.alone * here_.At(cores), times.together * share});
    // What waiting for memory does not explain.
    if (work.bytes < times.together * share) {
      work.crowded_seconds = std::max(times.alone, times.together);
    }
    return work;
  }

  int threads_, together_, cores_;
  BandwidthCurve here_;
  double speed_;         // seconds there for one here
  double uncached_ = 0;  // part of what caches hold here that comes from memory there
};

ServerOptions DescribeServer(const MeasuredNetwork& measured, const ParamStore& store,
                             const std::vector<int>& leaf_domain) {
  ServerOptions server;
  store.DescribeTo(server);
  server.leaf_domain = leaf_domain;
  server.optimizer = measured.options.optimizer;
  server.policy = measured.options.policy;
  server.clip_norm = measured.options.clip_norm;
  server.ema_decay = measured.options.ema_decay;
  return server;
}

double Bytes(const ServerCosts& costs) {
  double bytes = 0;
  for (const auto& bucket : costs.slices) {
    for (const SliceCosts& slice : bucket) bytes += slice.first + slice.update;
  }
  return bytes;
}

ServerCosts CostsHere(const MeasuredNetwork& measured, size_t leaves) {
  const ParamStore store({&measured.plan}, measured.options.domain_nodes);
  std::vector<int> leaf_domain;
  for (size_t leaf = 0; leaf < leaves; ++leaf) {
    leaf_domain.push_back(measured.options.seats[leaf].domain);
  }
  return CostsOf(DescribeServer(measured, store, leaf_domain));
}

void AddServer(const MeasuredNetwork& measured, const MachineModel& target, const Scaling& scaling,
               SimSetup& setup) {
  const ParamStore store({&measured.plan},
                         std::vector<int>(static_cast<size_t>(target.domains), -1));
  const ServerCosts costs = CostsOf(DescribeServer(measured, store, setup.leaf_domain));
  const size_t leaves = measured.options.seats.size();
  const double alone = Bytes(CostsHere(measured, 1));
  const BusyTimes of_a_byte{measured.profile.slices.alone / alone,
                            measured.profile.slices.together / Bytes(CostsHere(measured, leaves))};
  const double others = static_cast<double>(target.domains - 1) / target.domains;
  const double remote = 1 + (target.remote_factor - 1) * others;
  const auto work = [&](double bytes) { return scaling.Slice(of_a_byte, bytes, remote); };
  setup.server.commit = costs.two_phases;
  for (const auto& bucket : costs.slices) {
    std::vector<SimSlice>& slices = setup.server.slices.emplace_back();
    for (const SliceCosts& slice : bucket) {
      slices.push_back({slice.owner, work(slice.first), work(slice.update)});
    }
  }
  std::vector<int> bucket_of;
  for (size_t p = 0; p < measured.plan.params.size(); ++p) {
    const int parameter = store.ServerParameter(static_cast<int>(p));
    bucket_of.push_back(parameter < 0 ? -1 : costs.bucket_of[static_cast<size_t>(parameter)]);
  }
  const std::vector<OpBuckets> buckets = BucketsOf(measured.plan, bucket_of);
  for (size_t i = 0; i < buckets.size(); ++i) {
    setup.ops[i].awaits = buckets[i].awaits;
    setup.ops[i].uses = buckets[i].uses;
  }
}

}  // namespace

MeasuredNetwork MeasureNetwork(const Graph& graph, const TrainerOptions& options,
                               const MachineModel& machine, double defer_memory, double seconds) {
  MeasuredNetwork measured{options, MeasureOps(graph, options, seconds), {}, machine, {}};
  measured.options.memory = nullptr;  // it would be held as long as what was measured
  PlanOptions plan =
      PlanOptionsFor(options, Mode::kTraining, MicroBatchSizes(options.train).front());
  plan.defer_memory = defer_memory;
  Workers worker({options.seats[0]});
  worker.Run([&](int) { measured.plan = Plan::Build(graph, plan); });
  if (measured.plan.ops.size() != measured.profile.ops.size()) {
    Fail("the plan for simulation has {} ops, the measured one {}", measured.plan.ops.size(),
         measured.profile.ops.size());
  }
  return measured;
}

SerialParts FindSerialParts(const MeasuredNetwork& one, const MeasuredNetwork& several) {
  // By kinds of op: single ops' times vary by more than what is looked for, and what one is called
  // and split into depends on the plan. Compared in lockstep, where as many cores are busy.
  struct Times {
    double one = 0, several = 0;
  };
  std::map<std::pair<std::string, OpKind>, Times> kinds;
  const auto kind = [](const PlanOp& op) { return std::pair(op.layer, op.kind); };
  for (size_t i = 0; i < one.plan.ops.size(); ++i) {
    kinds[kind(one.plan.ops[i])].one += one.profile.ops[i].together;
  }
  for (size_t i = 0; i < several.plan.ops.size(); ++i) {
    kinds[kind(several.plan.ops[i])].several += several.profile.ops[i].together;
  }
  const double threads = static_cast<double>(Threads(several)) / Threads(one);
  const auto part = [&](const Times& times) {
    return std::clamp((times.several / times.one - 1) / (threads - 1), 0.0, 1.0);
  };
  Times all;
  for (const auto& [name, times] : kinds) {
    if (times.one == 0 || times.several == 0) continue;
    all.one += times.one;
    all.several += times.several;
  }
  if (all.one == 0) Fail("no kind of op is in the plans for one and for {} threads", threads);
  SerialParts result;
  for (const PlanOp& op : one.plan.ops) {
    const Times& times = kinds[kind(op)];
    result.ops.push_back(part(times.one == 0 || times.several == 0 ? all : times));
  }
  return result;
}

SimSetup SetupFor(const MeasuredNetwork& measured, const MachineModel& target, const SimCase& run) {
  const int cores = run.cores_per_instance;
  if (cores != Threads(measured) && measured.serial.ops.empty()) {
    Fail("instances of {} cores were not measured, and how ops speed up with threads neither",
         cores);
  }
  SimSetup setup;
  const int per_domain = (run.instances + target.domains - 1) / target.domains;
  for (int leaf = 0; leaf < run.instances; ++leaf) setup.leaf_domain.push_back(leaf / per_domain);
  setup.cores_per_domain = target.cores_per_domain;
  setup.bandwidth = target.bandwidth;
  setup.policy = run.policy;
  setup.seed = run.seed;
  setup.jitter = measured.profile.jitter;
  setup.passes = measured.options.train.MicroBatches(0, 0);

  const BandwidthCurve curve(target.bandwidth);
  std::vector<double> of_seats;
  for (int seats = 1; seats <= per_domain; ++seats) of_seats.push_back(curve.At(seats * cores));
  setup.gate_limit = run.gate > 0 ? run.gate : GateLimit(of_seats);
  const SeatRates rates{.flops = target.core_flops * cores,
                        .bytes = of_seats.back() / per_domain,
                        .bytes_alone = of_seats.front()};
  const std::vector<NextOp> next = SchedulerOps(measured.plan, rates);
  const Scaling scaling(measured, target, cores);
  for (size_t i = 0; i < measured.plan.ops.size(); ++i) {
    const PlanOp& op = measured.plan.ops[i];
    const double serial = measured.serial.ops.empty() ? 0 : measured.serial.ops[i];
    setup.ops.push_back({.work = scaling.Op(measured.profile.ops[i], op.bytes, serial),
                         .next = next[i],
                         .latest = op.latest,
                         .awaits = {},
                         .uses = {}});
  }
  AddServer(measured, target, scaling, setup);
  // What lies between ops is done by one thread; its traffic is small beside the ops'.
  const BusyTimes between{measured.profile.between, measured.profile.between};
  SimOp first{
      .work = scaling.Op(between, 0, 1), .next = {}, .latest = -1, .awaits = {}, .uses = {}};
  setup.ops.insert(setup.ops.begin(), std::move(first));
  for (SimOp& op : setup.ops) op.latest += op.latest >= 0 ? 1 : 0;
  return setup;
}

}  // namespace parax
