#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "parax/base/error.h"
#include "parax/base/file.h"
#include "parax/base/log.h"
#include "parax/base/sha256.h"
#include "parax/base/text.h"
#include "parax/cli/profile_internal.h"
#include "parax/cli/report.h"
#include "parax/cli/train_report.h"
#include "parax/cli/train_run.h"

namespace parax {
namespace {

constexpr size_t kWorstMistakes = 24;

// Wrong predictions, the most confident first.
std::vector<ReportMistake> WorstMistakes(const EvalReport& eval, const Split& split) {
  std::vector<size_t> wrong;
  for (size_t i = 0; i < eval.labels.size(); ++i) {
    if (eval.read[i] && eval.labels[i] != eval.predicted[i]) wrong.push_back(i);
  }
  std::stable_sort(wrong.begin(), wrong.end(),
                   [&](size_t a, size_t b) { return eval.confidence[a] > eval.confidence[b]; });
  wrong.resize(std::min(wrong.size(), kWorstMistakes));
  std::vector<ReportMistake> mistakes;
  for (const size_t i : wrong) {
    mistakes.push_back({split.Path(static_cast<int64_t>(i)), eval.labels[i], eval.predicted[i],
                        eval.confidence[i]});
  }
  return mistakes;
}

std::string FileSha256(const std::filesystem::path& path) {
  const MappedFile file(path);
  Sha256 digest;
  digest.Update(file.bytes());
  return digest.Finish();
}

std::string Percent(double fraction) { return fmt::format("{:.2f} %", 100 * fraction); }

}  // namespace

std::filesystem::path TrainRun::UsedWeights() const {
  return ResolveModelArgument(setup_.options.out).checkpoint /
         (setup_.trainer.ema_decay > 0 ? "ema.safetensors" : "model.safetensors");
}

void TrainRun::WriteFinalReport() const {
  const Options& o = setup_.options;
  ReportContent content;
  content.title = fmt::format("{} on {}", setup_.config.model.name, o.data);
  content.command = state_.command;
  content.toml = state_.config_toml;
  content.machine = MachineFacts(setup_, memory_);
  content.metrics = ReadMetrics(o.out / "metrics.jsonl");
  content.classes = setup_.config.classes;
  if (saved_ > 0) content.usage = UsageLines(setup_, used_, Finished());
  content.summary = {{"steps", fmt::format("{} of {}", trainer_->iteration(), setup_.total_steps)},
                     {"training time", HumanTime(state_.seconds)}};
  if (progress_->ImagesPerSecond() > 0) {  // else a finished run was taken up again
    content.summary.emplace_back("images/s", fmt::format("{:.1f}", progress_->ImagesPerSecond()));
  }
  if (evaluated_ > 0) {
    content.summary.emplace_back(fmt::format("validation accuracy, step {}", evaluated_),
                                 Percent(last_eval_.total.accuracy()));
    content.evaluated_step = evaluated_;
    content.confusion = ConfusionMatrix(last_eval_, setup_.config.classes.size());
    content.mistakes = WorstMistakes(last_eval_, setup_.selection());
  }
  if (state_.best) {
    content.summary.emplace_back(
        fmt::format("best {}", state_.best->metric),
        fmt::format("{:.4f} at step {}", state_.best->value, state_.best->step));
  }
  if (saved_ > 0) {
    content.summary.emplace_back("eval and predict use", used_.parent_path().filename().string());
  }
  if (test_) {
    content.summary.emplace_back("test accuracy of the weights that eval and predict use",
                                 Percent(test_->accuracy()));
  }
  WriteReport(o.out / "report.html", content);
}

std::string TrainRun::JsonSummary(bool interrupted, const std::string& sha256) const {
  const auto checkpoint = NewestCheckpoint();
  nlohmann::ordered_json summary = {{"out", setup_.options.out.string()},
                                    {"step", trainer_->iteration()},
                                    {"steps", setup_.total_steps},
                                    {"interrupted", interrupted},
                                    {"seconds", state_.seconds},
                                    {"images_per_s", progress_->ImagesPerSecond()},
                                    {"checkpoint", saved_ > 0 ? checkpoint.string() : ""}};
  if (evaluated_ > 0) {
    summary["val_accuracy"] = last_eval_.total.accuracy();
    summary["val_loss"] = last_eval_.total.mean_loss();
  }
  if (state_.best) {
    summary["best"] = {{"metric", state_.best->metric},
                       {"value", state_.best->value},
                       {"step", state_.best->step}};
  }
  if (test_) {
    summary["test_accuracy"] = test_->accuracy();
    summary["test_loss"] = test_->mean_loss();
  }
  if (!sha256.empty()) {
    summary["sha256"] = sha256;
    summary["used_weights"] = used_.string();
  }
  if (const auto profile = recording_.ProfileOf(/*training=*/true)) {
    summary["profile"] = ProfileJson(*profile);
  }
  return summary.dump();
}

void TrainRun::PrintSummary(bool interrupted, const std::string& sha256) const {
  const std::filesystem::path checkpoint = NewestCheckpoint();
  if (interrupted) {
    fmt::print("interrupted after step {} of {}; {}\n", trainer_->iteration(), setup_.total_steps,
               saved_ > 0 ? "saved in " + Printable(checkpoint.string()) : "nothing to save yet");
  } else if (Stale()) {
    fmt::print("stopped early: {} evaluations in a row were no better than step {}\n",
               state_.evaluations_without_better, state_.best ? state_.best->step : 0);
  }
  if (evaluated_ > 0) {
    fmt::print("validation accuracy {} at step {}\n", Percent(last_eval_.total.accuracy()),
               evaluated_);
  }
  if (state_.best && static_cast<uint64_t>(state_.best->step) != evaluated_) {
    fmt::print("best {} at step {}: {}\n", state_.best->metric, state_.best->step,
               state_.best->metric == "accuracy" ? Percent(state_.best->value)
                                                 : fmt::format("{:.4f}", state_.best->value));
  }
  if (progress_->ImagesPerSecond() > 0)
    fmt::print("{:.1f} images/s\n", progress_->ImagesPerSecond());
  if (const auto profile = recording_.ProfileOf(/*training=*/true)) {
    fmt::print("{}", ProfileTable(*profile));
  }
  if (!report_failed_) {
    fmt::print("report: {}\n", Printable((setup_.options.out / "report.html").string()));
  }
  if (sha256.empty()) return;
  fmt::print("SHA-256 of {}/model.safetensors: {}\n", Printable(checkpoint.string()), sha256);
  fmt::print("eval and predict use {}:\n", Printable(used_.string()));
  if (test_) {
    fmt::print("  test accuracy of these weights: {} ({} images)\n", Percent(test_->accuracy()),
               test_->count);
  }
  for (const std::string& line : UsageLines(setup_, used_, Finished())) {
    fmt::print("  {}\n", line);
  }
}

int TrainRun::Finish(bool interrupted) {
  progress_->Finish();
  // All is saved: a signal merely puts off what follows, until the run is taken up again.
  std::string failure;
  const auto unless_stopped = [&](const auto& evaluate) {
    try {
      if (!interrupted && failure.empty()) evaluate();
    } catch (const std::exception& error) {
      interrupted = EvaluationStopped();
      if (!interrupted) failure = error.what();
    }
  };
  // A finished run taken up again: its report shows what it showed.
  if (evaluated_ == 0 && !setup_.selection().empty()) unless_stopped([&] { RunEvaluation(); });
  if (saved_ > 0) used_ = UsedWeights();
  if (!setup_.dataset.test.empty() && saved_ > 0 && !save_failed_) {
    unless_stopped([&] { EvaluateTest(); });
  }
  state_.seconds = seconds_before_ + SecondsSince(started_);
  try {
    WriteFinalReport();
  } catch (const std::exception& error) {
    report_failed_ = true;
    Warn("no report: {}", error.what());
  }
  const std::string sha256 = saved_ > 0 && !save_failed_
                                 ? FileSha256(NewestCheckpoint() / "model.safetensors")
                                 : std::string();
  if (setup_.options.json) {
    fmt::print("{}\n", JsonSummary(interrupted, sha256));
  } else {
    PrintSummary(interrupted, sha256);
  }
  if (evaluated_ > 0 && !last_eval_.total.finite) {
    failure = "the network's outputs are not finite: these weights are of no use; try a lower --lr";
  }
  if (save_failed_) {
    failure =
        fmt::format("the last state is not saved; {}",
                    saved_ == 0 ? "there is no checkpoint"
                                : fmt::format("the newest whole checkpoint is step {}", saved_));
  }
  if (!failure.empty()) LogLine(LogLevel::kError, failure);
  return !failure.empty() ? 1 : interrupted ? 130 : 0;
}

}  // namespace parax
