#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "parax/base/error.h"
#include "parax/engine/trainer_internal.h"

namespace parax {
namespace {

// Iterations that may be granted but not yet reported: bounds how far leaves run ahead of a stop;
// the server keeps the records of 8.
constexpr uint64_t kMostAhead = 6;

}  // namespace

Trainer::Trainer(const Graph& graph, TrainerOptions options)
    : options_(std::move(options)), workers_(options_.seats) {
  // On a leaf's thread: oneDNN kernels must be created under the thread count they will run with.
  workers_.Run([&](int leaf) {
    if (leaf == 0) BuildPlans(graph);
  });
  std::vector<const Plan*> plans;
  for (const auto& plan : plans_) plans.push_back(plan.get());
  store_ = std::make_unique<ParamStore>(plans, options_.domain_nodes);
  overlap_ = MakeOverlap(options_.overlap, options_.seats, stop_);
  if (options_.training) {
    ServerOptions server;
    if (overlap_ != nullptr && overlap_->gated()) server.gate = overlap_.get();
    store_->DescribeTo(server);
    if (server.parameters.empty()) FailUsage("every layer is frozen: nothing is left to train");
    for (const auto& parameter : server.parameters) trained_.push_back(parameter.name);
    for (const Seat& seat : options_.seats) server.leaf_domain.push_back(seat.domain);
    for (int leaf = 0; leaf < workers_.size(); ++leaf) {
      for (const int64_t it : {int64_t{0}, options_.train.IterationsPerEpoch() - 1}) {
        server.max_micro_batches =
            std::max(server.max_micro_batches, options_.train.MicroBatches(it, leaf));
      }
    }
    server.optimizer = options_.optimizer;
    server.policy = options_.policy;
    server.clip_norm = options_.clip_norm;
    server.ema_decay = options_.ema_decay;
    server.reduce_group = options_.reduce_group;
    server_ = std::make_unique<GradientServer>(std::move(server), stop_);
    store_->Attach(server_.get());
  }
  for (int leaf = 0; leaf < workers_.size(); ++leaf) {
    const int domain = workers_.seat(leaf).domain;
    TraceTrack* track = nullptr;
    if (options_.trace != nullptr) {
      const std::vector<int>& pus = workers_.seat(leaf).pus;
      track = &options_.trace->AddTrack(fmt::format(
          "instance {} ({} {})", leaf, pus.size() == 1 ? "CPU" : "CPUs", fmt::join(pus, ",")));
      if (server_) server_->CountSlices(leaf, &track->sums(true).slices);
    }
    Scheduler* scheduler = overlap_ == nullptr ? nullptr : &overlap_->scheduler();
    const bool gated = scheduler != nullptr && scheduler->gated(leaf);
    leaves_.push_back(std::make_unique<Leaf>(Instance::Wiring{
        leaf, domain, options_.domain_nodes[static_cast<size_t>(domain)], options_.memory.get(),
        store_.get(), server_.get(), &stop_, options_.hook, scheduler,
        options_.overlap.spare_crowded && gated, options_.overlap.rates, track}));
  }
  if (options_.trace != nullptr) {
    for (const Plan* plan : plans) options_.trace->AddPlan(DescribeForTrace(*plan));
  }
  workers_.Run([&](int leaf) { leaves_[static_cast<size_t>(leaf)]->instance.Prepare(plans); });
}

Trainer::~Trainer() = default;

PlanOptions PlanOptionsFor(const TrainerOptions& options, Mode mode, int64_t batch) {
  PlanOptions plan;
  plan.mode = mode;
  plan.batch = batch;
  plan.blocked = options.blocked;
  plan.layouts = options.layouts;
  plan.precision = options.precision;
  plan.winograd = options.winograd;
  plan.guards = options.guards;
  if (mode == Mode::kTraining && DefersOps(options.overlap, options.seats)) {
    plan.defer_memory = options.overlap.defer_memory;
  }
  plan.threads = static_cast<int>(options.seats.at(0).pus.size());
  plan.loss =
      mode == Mode::kTraining ? options.loss : LossOptions{options.loss.classes, 0, {}, false};
  plan.implementations = options.plan.For(mode, batch);
  return plan;
}

void Trainer::BuildPlans(const Graph& graph) {
  const auto build = [&](Mode mode, int64_t batch) {
    plans_.push_back(std::make_unique<Plan>(Plan::Build(
        graph, PlanOptionsFor(options_, mode, batch), plans_.empty() ? nullptr : plans_[0].get())));
  };
  if (options_.training) {
    for (const int64_t size : MicroBatchSizes(options_.train)) build(Mode::kTraining, size);
    if (plans_.empty()) FailUsage("there are no training samples");
  }
  const std::set<int64_t, std::greater<>> sizes(options_.eval_sizes.begin(),
                                                options_.eval_sizes.end());
  for (const int64_t size : sizes) build(Mode::kEvaluation, size);
}

void Trainer::Load(const TensorMap& tensors) { store_->Load(tensors); }

void Trainer::Resume(uint64_t iteration, const TensorMap& optimizer, const TensorMap& ema) {
  store_->LoadOptimizer(optimizer, options_.optimizer);
  if (!ema.empty()) store_->LoadEma(ema);
  server_->RefreshForms();
  server_->StartAt(iteration);
  iteration_ = iteration;
  for (auto& leaf : leaves_) leaf->finished.Publish(iteration);
}

PlanRecord Trainer::Record() const {
  PlanRecord record;
  record.blocked = options_.blocked;
  record.layers = options_.layouts;
  record.winograd = options_.winograd;
  record.threads = static_cast<int>(options_.seats[0].pus.size());
  record.precision = options_.precision.type;
  record.machine = MachineKey(options_.precision.emulate);
  for (const auto& plan : plans_) record.Take(*plan);
  return record;
}

TensorMap Trainer::Weights() const { return store_->Export(); }
TensorMap Trainer::EmaWeights() const { return store_->ExportEma(); }
TensorMap Trainer::OptimizerStates() const { return store_->ExportOptimizer(options_.optimizer); }

Outcome Trainer::RunIteration(int leaf, uint64_t iteration, InputSource& input) {
  Leaf& self = *leaves_[static_cast<size_t>(leaf)];
  const int64_t in_epoch = static_cast<int64_t>(
      (iteration - 1) % static_cast<uint64_t>(options_.train.IterationsPerEpoch()));
  const BatchPlan::Piece share = options_.train.Share(in_epoch, leaf);
  const int micro_batches = options_.train.MicroBatches(in_epoch, leaf);
  LossResult& total = self.results[iteration % Leaf::kRing];
  total = LossResult{};
  const TraceEvent server_work{.iteration = iteration, .kind = TraceKind::kServerWork};
  TraceTimer timer(self.track);
  Outcome outcome =
      server_->BeginIteration(leaf, iteration, options_.learning_rate(iteration), share.count);
  timer.Note(server_work);
  for (int micro = 0; micro < micro_batches && outcome == Outcome::kOk; ++micro) {
    MicroBatch batch;
    timer.Start();
    outcome = input.Acquire(leaf, batch);
    timer.Note({.iteration = iteration, .kind = TraceKind::kInputWait});
    if (outcome != Outcome::kOk) break;
    const RunContext context{options_.seed, iteration, batch.sample_ids};
    outcome = self.instance.Train(batch, context, micro, micro_batches, total);
    if (outcome == Outcome::kNotFinite && !total.finite) {
      // The run ends here, so allocating is allowed: look for the layer, then stop everybody. The
      // first leaf to get here writes the message; nobody else reads it before all leaves are done.
      const std::lock_guard lock(failure_mutex_);
      if (failure_.empty()) {
        failure_ = fmt::format(
            "the loss is not finite at step {}; first layer whose output is not "
            "finite: {}",
            iteration, self.instance.FirstNonFinite(context));
      }
      stop_.Fail(Outcome::kNotFinite, "loss of step", static_cast<int64_t>(iteration));
    }
    input.Release(leaf);
  }
  if (outcome != Outcome::kOk) return outcome;
  timer.Start();
  if (micro_batches == 0) self.instance.PublishNothing();
  server_->PublishMoments(leaf, micro_batches);
  outcome = server_->EndIteration(leaf);
  timer.Note(server_work);
  return outcome;
}

void Trainer::TrainLeaf(int leaf, uint64_t first, InputSource& input) {
  Leaf& self = *leaves_[static_cast<size_t>(leaf)];
  const TraceSpan span(self.track, /*training=*/true);
  const auto drain = [&](uint64_t t) {
    TraceTimer timer(self.track);
    const Outcome outcome = server_->Drain(leaf);
    timer.Note({.iteration = t, .kind = TraceKind::kServerWork});
    return outcome;
  };
  for (uint64_t t = first;; ++t) {
    if (!granted_.reached(t)) {
      // About to wait: help with what is left of the updates first, others may wait for them.
      if (drain(t) != Outcome::kOk) return;
      if (granted_.Wait(t, stop_, std::chrono::hours(24), {"grant of step", int64_t(t)}) !=
          Outcome::kOk) {
        return;
      }
    }
    if (t > end_at_.load(std::memory_order_acquire)) {
      (void)drain(t);
      return;
    }
    const Outcome outcome = RunIteration(leaf, t, input);
    if (outcome != Outcome::kOk) {
      stop_.Fail(outcome, "leaf", leaf);  // where nobody said so yet: others must not wait for us
      return;
    }
    self.finished.Publish(t);
  }
}

std::optional<StepReport> Trainer::Collect(uint64_t iteration) const {
  StepReport report;
  report.iteration = iteration;
  for (const auto& leaf : leaves_) report.loss += leaf->results[iteration % Leaf::kRing];
  report.learning_rate = options_.learning_rate(iteration);
  if (options_.policy == UpdatePolicy::kCommit) {
    // The record may still be on its way: whoever reduces the last slice writes it.
    CommitRecord record;
    for (;;) {
      const bool stopped = stop_.stopped();  // before the look, so that it is the last one
      record = server_->record(iteration);
      if (record.iteration == iteration) break;
      if (stopped) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    report.gradient_norm = record.gradient_norm;
  }
  return report;
}

TrainEnd Trainer::Train(uint64_t last, InputSource& input,
                        const std::function<void(const StepReport&)>& report,
                        const std::function<bool()>& interrupted) {
  TrainEnd end;
  const uint64_t first = iteration_ + 1;
  end_at_.store(last, std::memory_order_release);
  uint64_t window = 2;
  const auto grant = [&](uint64_t done) {
    const uint64_t to = std::min(last, done + window);
    if (to > granted_.value()) granted_.Publish(to);
  };
  if (granted_.value() < iteration_) granted_.Publish(iteration_);
  grant(iteration_);
  workers_.Start([&](int leaf) { TrainLeaf(leaf, first, input); });

  bool stopping = false;
  uint64_t end_at = last;
  Clock::time_point before = Clock::now();
  for (uint64_t t = first; t <= end_at && !stop_.stopped(); ++t) {
    for (size_t leaf = 0; leaf < leaves_.size(); ++leaf) {
      while (!leaves_[leaf]->finished.reached(t) && !stop_.stopped()) {
        StopFlag slice;
        (void)leaves_[leaf]->finished.Wait(t, slice, std::chrono::milliseconds(50), {"step"});
        if (!stopping && interrupted()) {
          stopping = true;
          end_at = granted_.value();
          end_at_.store(end_at, std::memory_order_release);
        }
      }
    }
    if (stop_.stopped()) break;
    const std::optional<StepReport> step = Collect(t);
    if (!step) break;
    iteration_ = t;
    report(*step);
    const double seconds = std::chrono::duration<double>(Clock::now() - before).count();
    before = Clock::now();
    // Up to half a second ahead: enough never to starve the leaves, little to wait for at a stop.
    window =
        std::clamp<uint64_t>(static_cast<uint64_t>(0.5 / std::max(seconds, 1e-4)), 2, kMostAhead);
    if (!stopping && interrupted()) {
      stopping = true;
      end_at = granted_.value();
      end_at_.store(end_at, std::memory_order_release);
    }
    if (!stopping) grant(t);
  }
  // Wakes whoever waits for a grant beyond the end: it sees end_at_ and leaves.
  granted_.Publish(std::max(granted_.value(), end_at + 1));
  workers_.Wait();
  end.iteration = iteration_;
  if (stop_.stopped()) {
    end.outcome = stop_.outcome();
    end.reason = !failure_.empty() ? failure_
                 : end.outcome == Outcome::kNotFinite
                     ? "not finite: gradient of " + trained_[static_cast<size_t>(stop_.index())]
                     : stop_.Reason();
  }
  return end;
}

PageKind Trainer::pages() const { return leaves_.back()->instance.pages(); }

}  // namespace parax
