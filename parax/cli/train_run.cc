#include "parax/cli/train_run.h"

#include <fmt/core.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "parax/base/error.h"
#include "parax/base/file.h"
#include "parax/base/log.h"
#include "parax/base/text.h"
#include "parax/cli/signals.h"
#include "parax/cli/train_report.h"
#include "parax/engine/weights.h"

namespace parax {
namespace {

// Log points of a long run are thinned to about this many.
constexpr uint64_t kMostLogPoints = 20000;

constexpr size_t kMostPlanBytes = size_t{64} << 20;

}  // namespace

TrainRun::TrainRun(TrainSetup setup, std::optional<ResumePoint> resume, const Recording& recording)
    : setup_(std::move(setup)), recording_(recording) {
  if (resume) state_ = resume->state;
  if (resume && state_.samples != setup_.trainer.train.samples) {
    FailUsage("--resume: the run had {} training images, {} has {}: give it the same data",
              state_.samples, setup_.options.data, setup_.trainer.train.samples);
  }
  const std::string data = DataDigest(setup_.dataset.train);
  if (resume && !state_.data.empty() && state_.data != data) {
    FailUsage("--resume: {} holds other training images than the run's data did: give it the same",
              setup_.options.data);
  }
  if (resume && ParseModelConfig(resume->content.config_json, "config.json").classes !=
                    setup_.config.classes) {
    FailUsage("--resume: {} has other classes than the run's data had", setup_.options.data);
  }
  if (state_.step > setup_.total_steps) {
    Fail("{}/state.json: step {} is beyond the run's {}", resume->checkpoint.string(), state_.step,
         setup_.total_steps);
  }
  if (resume && NothingLeft() && state_.best && state_.best->metric != setup_.options.best_metric) {
    FailUsage("--best-metric: the run is finished, and its best step is known: leave it out");
  }
  if (state_.best && state_.best->metric != setup_.options.best_metric) {
    Info("--best-metric is now {}: the search for the best step starts anew",
         setup_.options.best_metric);
    state_.best.reset();
    state_.evaluations_without_better = 0;
  }
  const std::string val = DataDigest(setup_.dataset.val);
  if (resume && state_.val != val) {
    Warn(
        "the validation images are not those that the run had: its best step so far was chosen by "
        "others");
  }
  state_.val = val;
  state_.samples = setup_.trainer.train.samples;
  state_.data = data;
  state_.held_out = setup_.dataset.held_out;
  state_.sketch = Sketch(setup_.dataset.train, kSketched);
  Options stored = setup_.options;  // found again from any folder
  if (!setup_.synthetic) stored.data = std::filesystem::absolute(stored.data).lexically_normal();
  state_.config_toml = ToToml(stored);
  if (state_.command.empty()) state_.command = setup_.options.command_line;
  seconds_before_ = state_.seconds;
  memory_ = CheckedMemory(setup_);
  Info("{}, peak {} of {}", MachineLine(setup_.machine),
       HumanBytes(static_cast<double>(memory_.total())),
       HumanBytes(static_cast<double>(setup_.machine.topology.memory_limit_bytes)));
  for (const std::string& note : setup_.machine.notes) Info("{}", note);
  for (const std::string& note : setup_.dataset.notes) Info("{}", note);
  for (const std::string& warning : setup_.dataset.warnings) Warn("{}", warning);
  for (const std::string& note : setup_.notes) Info("{}", note);
  Initialise(resume);
}

void TrainRun::Initialise(std::optional<ResumePoint>& resume) {
  const Options& o = setup_.options;
  if (resume) setup_.trainer.plan = PlanRecord::FromJson(resume->content.plan_json, "plan.json");
  if (!o.plan.empty() && (!resume || o.given.contains("plan"))) {
    setup_.trainer.plan = PlanRecord::FromJson(ReadFile(o.plan, kMostPlanBytes), o.plan.string());
    if (o.layout != "auto" && ((o.layout == "blocked") != setup_.trainer.plan.blocked ||
                               !setup_.trainer.plan.layers.empty())) {
      FailUsage("--layout {} contradicts --plan {}, which has other layouts: leave one out",
                o.layout, o.plan.string());
    }
    if (o.given.contains("winograd") && o.winograd != setup_.trainer.plan.winograd) {
      FailUsage("--winograd {} contradicts --plan {}: leave one out", o.winograd, o.plan.string());
    }
  }
  const std::string_view precision = Name(setup_.trainer.plan.precision);
  if (!setup_.trainer.plan.plans.empty() && precision != o.precision) {
    FailUsage("--plan {} is one for --precision {}, not {}: give that, or leave --plan out",
              o.plan.string(), precision, o.precision);
  }
  const size_t announced_peak = memory_.total();
  const std::string wanted_hash =
      setup_.trainer.plan.plans.empty() ? "" : setup_.trainer.plan.Hash();
  if (!wanted_hash.empty()) {
    // The layouts decide how much memory it takes; kernels of another network are refused below.
    PlanRecord plan = std::exchange(setup_.trainer.plan, {});
    const bool checked =
        std::exchange(setup_.trainer.blocked, plan.blocked) == plan.blocked && plan.layers.empty();
    setup_.trainer.layouts = plan.layers;
    setup_.trainer.winograd = plan.winograd;
    if (!checked) memory_ = CheckedMemory(setup_);
    setup_.trainer.plan = std::move(plan);
    const std::string here = MachineKey(setup_.trainer.precision.emulate);
    if (setup_.trainer.plan.machine != here) {
      Warn(
          "the plan was made on another machine ({}; this one: {}): results will not be the same "
          "bits",
          setup_.trainer.plan.machine, here);
      setup_.trainer.plan = {};
    }
  }
  if (wanted_hash.empty() && o.tune == "auto") ChoosePlan(setup_, memory_);
  try {
    trainer_ = std::make_unique<Trainer>(setup_.graph, setup_.trainer);
  } catch (const Error& error) {
    if (wanted_hash.empty()) throw;
    Fail("the plan {} is not one of this network, batch and machine: {}", o.plan.string(),
         error.what());
  }
  const PlanRecord record = trainer_->Record();
  if (!wanted_hash.empty() && record.Hash() != wanted_hash) {
    Warn("the resolved plan ({}) is not the saved one ({}): results will not be the same bits",
         record.Hash(), wanted_hash);
  }
  if (!trainer_->threads_bound()) Warn("the system refused to bind threads to cores");
  Info("plan {}: {} layout{}, memory in {}", record.Hash(),
       !setup_.trainer.layouts.empty() ? "mixed"
       : setup_.trainer.blocked        ? "blocked"
                                       : "channels-last",
       memory_.total() == announced_peak
           ? ""
           : fmt::format(" (peak {})", HumanBytes(static_cast<double>(memory_.total()))),
       Name(trainer_->pages()));

  if (resume) {
    trainer_->Load(StrictLoad(setup_.graph, std::move(resume->content.model), "model.safetensors"));
    trainer_->Resume(state_.step, resume->content.optimizer, resume->content.ema);
    RecordBest();
    const bool finished = NothingLeft();
    Info("{} {} (step {} of {}){}", finished ? "finished already:" : "resuming from",
         resume->checkpoint.string(), state_.step, setup_.total_steps,
         finished ? ": nothing is left to train" : "");
  } else if (!o.init_from.empty()) {
    trainer_->Load(InitialWeights(setup_));
  } else {
    trainer_->Load(InitTensors(setup_.graph, o.seed));
  }
  malloc_trim(0);     // tables and tensors of the set-up would count against the rest of the run
  NoteStopSignals();  // the run folder comes to hold something: from here on a stop is in order
  saved_ = state_.step;
  std::filesystem::create_directories(Checkpoints());
  WriteFileAtomically(o.out / "config.toml", state_.config_toml);
  WriteFileAtomically(o.out / "plan.json", record.ToJson());
  metrics_ = std::make_unique<MetricsLog>(
      o.out / "metrics.jsonl", state_.step,
      resume ? RunFolderOf(resume->checkpoint) / "metrics.jsonl" : std::filesystem::path());
  events_ = std::make_unique<EventWriter>(o.out, state_.step);
  progress_ =
      std::make_unique<Progress>(setup_.total_steps, state_.step,
                                 static_cast<double>(setup_.steps_per_epoch), o.quiet || o.json);
}

bool TrainRun::Stale() const {
  return setup_.options.patience > 0 &&
         state_.evaluations_without_better >= setup_.options.patience;
}

uint64_t TrainRun::NextStop() const {
  uint64_t next = setup_.total_steps;
  for (const uint64_t every : {setup_.eval_every, setup_.save_every}) {
    if (every > 0) next = std::min(next, (trainer_->iteration() / every + 1) * every);
  }
  return next;
}

TrainRun::Due TrainRun::DueAt(uint64_t step, bool interrupted) const {
  Due due;
  const bool last = step == setup_.total_steps;
  const bool has_val = !setup_.selection().empty();
  due.evaluate =
      has_val &&
      (last || (setup_.eval_every > 0 && step % setup_.eval_every == 0) ||
       (setup_.eval_seconds > 0 && SecondsSince(last_eval_time_) >= setup_.eval_seconds));
  due.save = last || interrupted || (setup_.save_every > 0 && step % setup_.save_every == 0) ||
             (setup_.save_seconds > 0 && SecondsSince(last_save_) >= setup_.save_seconds);
  return due;
}

void TrainRun::FlushPoint() {
  if (!point_) return;
  const uint64_t every = setup_.total_steps / kMostLogPoints + 1;
  const bool evaluated = point_->extra.contains("val_loss");
  if (evaluated || point_->step % every == 0 || point_->step == setup_.total_steps) {
    metrics_->Append(*point_);
    events_->Scalar("train/loss", point_->step, point_->loss);
    events_->Scalar("train/lr", point_->step, point_->lr);
    for (const auto& [name, value] : point_->extra) {
      events_->Scalar(name.starts_with("val_") ? "val/" + name.substr(4) : "train/" + name,
                      point_->step, value);
    }
  }
  point_.reset();
}

void TrainRun::TakeStep(const StepReport& report) {
  FlushPoint();
  MetricPoint point;
  point.step = report.iteration;
  point.epoch = static_cast<double>(report.iteration) / static_cast<double>(setup_.steps_per_epoch);
  point.loss = report.loss.mean_loss();
  point.lr = report.learning_rate;
  progress_->Step(report.iteration, point.loss, report.loss.accuracy(), report.loss.count);
  point.extra["accuracy"] = report.loss.accuracy();
  point.extra["images_per_s"] = progress_->ImagesPerSecond();
  if (setup_.trainer.policy == UpdatePolicy::kCommit) {
    point.extra["gradient_norm"] = report.gradient_norm;
  }
  point_ = std::move(point);
}

std::filesystem::path TrainRun::NewestCheckpoint() const {
  return Checkpoints() / fmt::format("step-{}", saved_);
}

void TrainRun::CloseStep(bool interrupted, bool owed) {
  improved_ = false;
  Due due = DueAt(trainer_->iteration(), interrupted);
  due.evaluate |= owed;
  std::string failure;
  if (due.evaluate) {
    try {
      if (!interrupted) Evaluate();
    } catch (const std::exception& error) {
      interrupted = EvaluationStopped();
      if (!interrupted) failure = error.what();
    }
    if (interrupted || !failure.empty()) {
      // Whoever stopped us may not wait that long, and a failure must not take the steps since the
      // last save with it. Resuming makes up for the evaluation, so that the best step and the
      // early stop come out as if nothing had happened.
      state_.owed = std::move(point_);
      point_.reset();
      due.save = true;
    }
  }
  due.save |= EvaluationStopped();  // also when it had just come to its end
  FlushPoint();
  if (due.save || improved_ || Stale()) {
    Save(Finished() || interrupted || !failure.empty());
    malloc_trim(0);  // else the copies stay resident whenever something small lies behind them
  }
  events_->Flush();
  if (failure.empty()) return;
  progress_->Clear();
  Fail("{}{}", failure,
       save_failed_ ? "" : fmt::format("; step {} is saved: --resume evaluates it again", saved_));
}

int TrainRun::Run() {
  started_ = last_save_ = last_eval_time_ = Clock::now();
  const auto input = TrainingInput(setup_, trainer_->iteration(), trainer_->stop());
  const auto stop_asked = [&] {
    return StopSignalled() ||
           (setup_.save_seconds > 0 && SecondsSince(last_save_) >= setup_.save_seconds) ||
           (setup_.eval_seconds > 0 && !setup_.selection().empty() &&
            SecondsSince(last_eval_time_) >= setup_.eval_seconds);
  };
  if (saved_ > 0 && !std::filesystem::exists(NewestCheckpoint())) {
    saved_ = 0;  // what --resume took lies in another run folder: this one gets it too
    Save(trainer_->iteration() == setup_.total_steps);
  }
  if (state_.owed) {
    point_ = std::move(state_.owed);
    state_.owed.reset();
    CloseStep(/*interrupted=*/false, /*owed=*/true);
  }
  bool interrupted = StopSignalled();
  while (trainer_->iteration() < setup_.total_steps && !interrupted && !Stale()) {
    const TrainEnd end = trainer_->Train(
        NextStop(), *input, [this](const StepReport& r) { TakeStep(r); }, stop_asked);
    interrupted = StopSignalled();
    if (end.outcome != Outcome::kOk) {
      progress_->Clear();
      FlushPoint();
      const std::string reason =
          end.outcome == Outcome::kInputFailed ? input->ErrorLine() : end.reason;
      Fail("training ended at step {}: {}; the last checkpoint ({}) is untouched",
           end.iteration + 1, reason, saved_ == 0 ? "none yet" : fmt::format("step {}", saved_));
    }
    CloseStep(interrupted, /*owed=*/false);
    interrupted |= EvaluationStopped();
  }
  const bool unfinished = state_.owed || trainer_->iteration() < setup_.total_steps;
  return Finish(interrupted && unfinished && !Stale());
}

}  // namespace parax
