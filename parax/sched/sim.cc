#include "parax/sched/sim.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "parax/base/error.h"
#include "parax/base/philox.h"
#include "parax/sched/sim_internal.h"

namespace parax {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kAtOnce = 1e18;  // rate of work that takes no time

int Domains(const SimSetup& setup) { return *std::ranges::max_element(setup.leaf_domain) + 1; }

}  // namespace

Simulation::Simulation(const SimSetup& setup)
    : setup_(setup),
      curve_(setup.bandwidth),
      last_(setup.warm_up + setup.iterations),
      tasks_(setup.server, static_cast<int>(setup.leaf_domain.size()), Domains(setup)),
      leaves_(setup.leaf_domain.size()),
      domains_(static_cast<size_t>(Domains(setup))),
      uses_(setup.server.slices.size()),
      ended_(static_cast<size_t>(last_) + 1),
      ended_at_(ended_.size()) {
  for (const SimOp& op : setup.ops) {
    for (const int bucket : op.uses) ++uses_[static_cast<size_t>(bucket)];
  }
  for (size_t leaf = 0; leaf < leaves_.size(); ++leaf) {
    leaves_[leaf].domain = setup.leaf_domain[leaf];
    leaves_[leaf].open = uses_;
  }
  for (size_t d = 0; d < domains_.size(); ++d) {
    const auto leaves = std::ranges::count(setup.leaf_domain, static_cast<int>(d));
    domains_[d].next = kNever;
    domains_[d].gate.limit = GatePlaces(setup.policy, setup.gate_limit, static_cast<int>(leaves));
  }
}

SimResult Simulation::Run() {
  const int leaves = static_cast<int>(leaves_.size());
  for (int leaf = 0; leaf < leaves; ++leaf) Proceed(leaf);
  for (;;) {
    Wake();
    for (Domain& domain : domains_) Repace(domain);
    if (ended_.back() == leaves) break;
    now_ = std::ranges::min_element(domains_, {}, &Domain::next)->next;
    if (now_ == kNever) Fail("the simulated instances wait for each other");
    for (Domain& domain : domains_) {
      if (domain.next > now_) continue;
      Catch(domain);
      // Who has done his work goes on before others are woken, as threads do.
      std::vector<int> done;
      for (const int leaf : domain.running) {
        if (At(leaf).end <= now_) done.push_back(leaf);
      }
      std::ranges::sort(done);
      for (const int leaf : done) FinishWork(leaf);
      for (const int leaf : done) Proceed(leaf);
    }
  }
  const double measured = ended_at_.back() - ended_at_[static_cast<size_t>(setup_.warm_up)];
  result_.seconds = measured / setup_.iterations;
  return std::move(result_);
}

void Simulation::Wake() {
  const int leaves = static_cast<int>(leaves_.size());
  for (int leaf = 0; leaf < leaves; ++leaf) {
    const Wait wait = At(leaf).wait;
    if (wait == Wait::kStart || (wait == Wait::kUpdate && rang_)) Proceed(leaf);
  }
  rang_ = false;
  for (Domain& domain : domains_) {
    while (domain.gate.open() && !domain.at_gate.empty()) {
      const int leaf = domain.at_gate.front();
      domain.at_gate.pop_front();
      Proceed(leaf);
    }
  }
}

void Simulation::FinishWork(int leaf) {
  Leaf& self = At(leaf);
  Domain& domain = DomainOf(self);
  Log(leaf, self);
  self.work = nullptr;
  std::erase(domain.running, leaf);
  if (self.running_op < 0) {
    rang_ = tasks_.Finish(self.slice) || rang_;
  } else {
    const bool last = self.pass + 1 == setup_.passes;
    for (const int bucket : setup_.ops[static_cast<size_t>(self.running_op)].uses) {
      if (!last) break;
      if (--self.open[static_cast<size_t>(bucket)] > 0) continue;
      rang_ = tasks_.Publish(bucket) || rang_;
    }
  }
  if (self.placed) --domain.gate.running;
}

void Simulation::Log(int leaf, const Leaf& self) {
  (self.running_op < 0 ? result_.in_slices : result_.in_ops) += now_ - self.since;
  if (!setup_.events) return;
  const bool access =
      self.running_op < 0 ||
      setup_.ops[static_cast<size_t>(self.running_op)].next.phase == Phase::kAccessIntensive;
  result_.events.push_back({leaf, self.iteration, self.running_op, access, self.since, now_});
}

void Simulation::Catch(Domain& domain) {
  const double elapsed = now_ - domain.now;
  domain.now = now_;
  domain.next = now_;  // not known: Repace says
  if (elapsed <= 0) return;
  for (const int leaf : domain.running) {
    Leaf& self = At(leaf);
    const double done = std::min(self.left, elapsed * self.rate);
    self.left -= done;
    result_.bytes += done * self.work->bytes;
  }
}

void Simulation::Repace(Domain& domain) {
  if (domain.next != domain.now) return;  // nothing changed
  domain.next = kNever;
  int busy = 0;
  for (const int leaf : domain.running) busy += At(leaf).work->cores;
  demands_.clear();
  for (const int leaf : domain.running) {
    Leaf& self = At(leaf);
    const SimWork& work = *self.work;
    const int others = setup_.cores_per_domain - work.cores;
    const double crowd = others > 0 ? std::min(1.0, (busy - work.cores) / double(others)) : 0;
    const double seconds = work.seconds + crowd * (work.crowded_seconds - work.seconds);
    self.rate = seconds > 0 ? 1 / seconds : kAtOnce;
    const double cores = work.cores;
    demands_.push_back({std::min(work.bytes * self.rate, curve_.At(cores)), cores});
  }
  ShareBandwidth(curve_, demands_);
  double moved = 0;
  for (size_t i = 0; i < domain.running.size(); ++i) {
    Leaf& self = At(domain.running[i]);
    if (self.work->bytes > 0) {
      self.rate = std::min(self.rate, demands_[i].granted / self.work->bytes);
    }
    moved += self.rate * self.work->bytes;
    self.end = now_ + self.left / self.rate;
    domain.next = std::min(domain.next, self.end);
  }
  result_.most_bandwidth = std::max(result_.most_bandwidth, moved);
}

double Simulation::Jitter(int leaf) {
  if (setup_.jitter <= 0) return 1;
  Leaf& self = leaves_[static_cast<size_t>(leaf)];
  RandomStream random(setup_.seed, RandomUse::kSimulation, self.works++,
                      static_cast<uint64_t>(leaf));
  const double sigma = setup_.jitter;
  return std::exp(sigma * random.Normal() - sigma * sigma / 2);  // mean 1
}

SimResult Simulate(const SimSetup& setup) { return Simulation(setup).Run(); }

}  // namespace parax
