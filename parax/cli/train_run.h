#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "parax/cli/metrics.h"
#include "parax/cli/progress.h"
#include "parax/cli/recording.h"
#include "parax/cli/resume.h"
#include "parax/cli/tensorboard.h"
#include "parax/cli/train_setup.h"

namespace parax {

// One training run in its run folder: trains, evaluates, saves, logs, stops.
class TrainRun {
 public:
  TrainRun(TrainSetup setup, std::optional<ResumePoint> resume, const Recording& recording);
  int Run();  // exit status

 private:
  struct Due {
    bool evaluate = false, save = false;
  };

  void Initialise(std::optional<ResumePoint>& resume);
  uint64_t NextStop() const;
  Due DueAt(uint64_t step, bool interrupted) const;
  bool Stale() const;  // time to stop early
  void TakeStep(const StepReport& report);
  // `averaged`: with the averaged weights. Throws when it fails or a signal stops it.
  EvalReport EvaluateOn(const Split& split, bool averaged);
  void RunEvaluation();
  void Evaluate();  // and judges
  bool EvaluationStopped() const { return trainer_->stop().outcome() == Outcome::kStopped; }
  void RecordBest() const;
  bool IsBetter(double value) const;
  void Save(bool is_last);
  void FlushPoint();
  // Evaluates and saves when due. `owed`: an evaluation that was put off. Throws Error when the
  // evaluation fails, after saving.
  void CloseStep(bool interrupted, bool owed);
  int Finish(bool interrupted);  // exit status
  void EvaluateTest();           // with the weights that are used from now on
  // What the run came to, for programs and for people. `sha256`: of the newest weights; "": not
  // saved.
  std::string JsonSummary(bool interrupted, const std::string& sha256) const;
  void PrintSummary(bool interrupted, const std::string& sha256) const;
  bool Finished() const { return trainer_->iteration() == setup_.total_steps || Stale(); }
  void WriteFinalReport() const;
  std::filesystem::path Checkpoints() const { return setup_.options.out / "checkpoints"; }
  std::filesystem::path NewestCheckpoint() const;
  // The file that eval and predict take of this run folder: the best checkpoint's, else the
  // newest's.
  std::filesystem::path UsedWeights() const;
  // The checkpoint that the run was taken up from is of its end.
  bool NothingLeft() const { return state_.step == setup_.total_steps && !state_.owed; }

  TrainSetup setup_;
  const Recording& recording_;
  RunState state_;
  MemoryEstimate memory_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<EventWriter> events_;
  std::unique_ptr<Progress> progress_;
  std::optional<MetricPoint> point_;  // the newest step's, until its evaluation is in
  EvalReport last_eval_;
  uint64_t evaluated_ = 0, saved_ = 0;  // steps
  bool improved_ = false;               // by the newest evaluation
  std::optional<LossResult> test_;
  std::filesystem::path used_;  // UsedWeights(), at the end of a run that has saved something
  bool save_failed_ = false, report_failed_ = false;
  Clock::time_point started_, last_save_, last_eval_time_;
  double seconds_before_ = 0;
};

}  // namespace parax
