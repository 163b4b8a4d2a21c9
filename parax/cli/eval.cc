#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "parax/base/error.h"
#include "parax/base/log.h"
#include "parax/base/text.h"
#include "parax/cli/commands.h"
#include "parax/cli/profile_internal.h"
#include "parax/cli/recording.h"
#include "parax/cli/resume.h"
#include "parax/cli/session.h"
#include "parax/cli/train_report.h"
#include "parax/data/pipeline.h"

namespace parax {
namespace {

constexpr size_t kMostPrintedClasses = 20;

double Ratio(int64_t part, int64_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

struct EvaluationData {
  Dataset dataset;
  bool learnt_from = false;      // its training images are, or may be, the run's
  std::vector<uint64_t> sketch;  // of the run's training images
};

// Training images must not be taken for others: what the run held out of its own data is held out
// again, and of other data nothing is.
EvaluationData OpenForEvaluation(const LoadedModel& model, const Options& options) {
  DatasetOptions data;
  data.classes = model.config.classes;
  data.strict = options.strict_data;
  data.hold_out = false;
  if (model.state_json.empty()) {
    Warn("which images the run has learnt from is not known: some of these may be among them");
    return {OpenDataset(options.data, data), false, {}};
  }
  const std::string file = (model.checkpoint / "state.json").string();
  const RunState state = ParseRunState(model.state_json, file);
  const Options run = FromToml(state.config_toml, file);
  DatasetOptions as_in_run = data;
  as_in_run.hold_out = state.held_out;
  as_in_run.seed = run.seed;
  as_in_run.val_split = run.val_split;
  Dataset dataset = OpenDataset(options.data, as_in_run);
  std::error_code none;  // the run's folder may be gone
  const bool same = !state.data.empty() && DataDigest(dataset.train) == state.data;
  const bool changed = !same && std::filesystem::equivalent(options.data, run.data, none);
  if (!same && !changed && dataset.held_out) dataset = OpenDataset(options.data, data);
  return {std::move(dataset), same || changed, state.sketch};
}

const Split& ChosenSplit(const EvaluationData& data, const std::string& name) {
  const Dataset& set = data.dataset;
  const Split& split = name == "val" ? set.val : name == "test" ? set.test : set.train;
  if (split.empty() && name == "val" && !set.train.empty()) {
    FailUsage("{} holds no validation images{}; --split train measures the {} {}",
              set.root.string(), data.learnt_from ? ", and the run held none out" : "",
              set.train.size(), data.learnt_from ? "that it has learnt from" : "in train/");
  }
  if (split.empty()) {
    FailUsage("{} holds no {} images; others: val {}, test {}, train {}", set.root.string(), name,
              set.val.size(), set.test.size(), set.train.size());
  }
  return split;
}

void PrintConfusion(const std::vector<int64_t>& counts, std::vector<std::string> classes) {
  for (std::string& name : classes) name = Printable(name);
  size_t width = 6;
  for (const std::string& name : classes) width = std::max(width, name.size());
  fmt::print("rows: true class; columns: predicted\n{:<{}}", "", width + 2);
  for (const std::string& name : classes) fmt::print("{:>{}}", name, width + 1);
  fmt::print("{:>{}}\n", "right", width + 3);
  for (size_t row = 0; row < classes.size(); ++row) {
    int64_t total = 0;
    fmt::print("{:<{}}", classes[row], width + 2);
    for (size_t column = 0; column < classes.size(); ++column) {
      total += counts[row * classes.size() + column];
      fmt::print("{:>{}}", counts[row * classes.size() + column], width + 1);
    }
    fmt::print("{:>{}.1f} %\n", 100 * Ratio(counts[row * classes.size() + row], total), width + 1);
  }
}

}  // namespace

int RunEval(const Options& options) {
  SetQuiet(options.quiet || options.json);
  if (options.model.empty()) FailUsage("--model is missing: a run folder or checkpoint");
  if (options.data.empty()) FailUsage("--data is missing: a folder of class folders");
  LoadedModel model = LoadModel(options.model);
  Info("{}", model.line);
  const EvaluationData data = OpenForEvaluation(model, options);
  const Dataset& dataset = data.dataset;
  if (dataset.held_out && options.split == "val")
    Info("measuring what the run held out of {}", options.data);
  for (const std::string& warning : dataset.warnings) Warn("{}", warning);
  const bool whole = dataset.flat && !data.learnt_from && !options.given.contains("split");
  const Split& split = whole ? dataset.train : ChosenSplit(data, options.split);
  if (split.empty()) {
    Fail(
        "{} holds no class folders with images; expected val/<class>/<image>, or class folders "
        "directly in it",
        options.data);
  }
  const std::string learnt = LearntNote(split, data.sketch);
  if (options.split != "train" && !learnt.empty()) Warn("{}", learnt);

  const Machine machine = PlanMachine(options);
  PrintMachine(machine);
  const BatchPlan batches =
      EvalBatches(split.size(), static_cast<int>(machine.plan.seats.size()), kEvalMicroBatch);
  Recording recording(options, machine);
  TrainerOptions evaluator = EvaluatorOptions(machine, model.config, options, batches);
  evaluator.trace = recording.trace();
  Trainer trainer(model.graph, std::move(evaluator));
  trainer.Load(model.weights);
  auto input = EvaluationSource(machine, model.config, options, split, batches, trainer.stop(),
                                recording.trace());
  const auto begin = Clock::now();
  const EvalReport report = trainer.Evaluate(batches, *input, false);
  const double seconds = SecondsSince(begin);
  input.reset();  // its threads write to the trace
  recording.Write();
  const std::optional<Profile> profile = recording.ProfileOf(/*training=*/false);

  const LossResult& total = report.total;
  if (total.count == 0) Fail("none of {} images can be decoded", split.size());
  if (!total.finite) Fail("the network's outputs are not finite: these weights are of no use");
  const double rate = static_cast<double>(total.count) / seconds;
  const auto confusion = ConfusionMatrix(report, model.config.classes.size());
  if (options.json) {
    nlohmann::ordered_json json = {{"images", total.count}, {"accuracy", total.accuracy()},
                                   {"top5", total.top5()},  {"loss", total.mean_loss()},
                                   {"images_per_s", rate},  {"classes", model.config.classes},
                                   {"confusion", confusion}};
    if (profile) json["profile"] = ProfileJson(*profile);
    fmt::print("{}\n", json.dump());
    return 0;
  }
  fmt::print("{} images of {}: top-1 {:.2f} %, top-5 {:.2f} %, loss {:.4f} ({:.1f} images/s)\n",
             total.count, whole ? options.data : options.split, 100 * total.accuracy(),
             100 * total.top5(), total.mean_loss(), rate);
  if (model.config.classes.size() <= kMostPrintedClasses) {
    PrintConfusion(confusion, model.config.classes);
  }
  if (profile) fmt::print("{}", ProfileTable(*profile));
  return 0;
}

}  // namespace parax
