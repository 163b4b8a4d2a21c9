#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "parax/base/error.h"
#include "parax/base/file.h"
#include "parax/base/log.h"
#include "parax/base/text.h"
#include "parax/cli/commands.h"
#include "parax/cli/resume.h"
#include "parax/cli/session.h"
#include "parax/cli/train_report.h"
#include "parax/data/pipeline.h"

namespace parax {
namespace {

constexpr int64_t kMicroBatch = 32;
constexpr size_t kMostPrintedClasses = 20;

// The run's own data is split as the run split it, lest training images are measured. Any other
// folder of class folders is measured whole.
Dataset OpenForEvaluation(const LoadedModel& model, const Options& options) {
  DatasetOptions data;
  data.classes = model.config.classes;
  data.strict = options.strict_data;
  std::string digest;
  const std::filesystem::path file = model.checkpoint / "state.json";
  if (std::filesystem::exists(file)) {
    const RunState state = ParseRunState(ReadFile(file), file.string());
    const Options run = FromToml(state.config_toml, file.string());
    data.seed = run.seed;
    data.val_split = run.val_split;
    digest = state.data;
  }
  Dataset dataset = OpenDataset(options.data, data);
  const bool own = !digest.empty() && DataDigest(dataset.train) == digest;
  if ((own && !dataset.val.empty()) || !(dataset.flat || data.val_split)) return dataset;
  data.val_split = dataset.flat ? std::optional(0.0) : std::nullopt;
  return OpenDataset(options.data, data);
}

const Split& ChosenSplit(const Dataset& dataset, const std::string& name) {
  const Split& split = name == "val" ? dataset.val : name == "test" ? dataset.test : dataset.train;
  if (split.empty()) {
    FailUsage("{} holds no {} images; others: val {}, test {}, train {}", dataset.root.string(),
              name, dataset.val.size(), dataset.test.size(), dataset.train.size());
  }
  return split;
}

double Ratio(int64_t part, int64_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
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
  const Dataset dataset = OpenForEvaluation(model, options);
  for (const std::string& note : dataset.notes) Info("{}", note);
  for (const std::string& warning : dataset.warnings) Warn("{}", warning);
  const bool whole = dataset.flat && !dataset.held_out && !options.given.contains("split");
  const Split& split = whole ? dataset.train : ChosenSplit(dataset, options.split);

  const Machine machine = PlanMachine(options);
  Info("{}", MachineLine(machine));
  const BatchPlan batches =
      EvalBatches(split.size(), static_cast<int>(machine.plan.seats.size()), kMicroBatch);
  Trainer trainer(model.graph, EvaluatorOptions(machine, model.config, options, batches));
  trainer.Load(model.weights);
  const auto input =
      EvaluationSource(machine, model.config, options, split, batches, trainer.stop());
  const auto begin = Clock::now();
  const EvalReport report = trainer.Evaluate(batches, *input, false);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();

  const LossResult& total = report.total;
  if (!total.finite) Fail("the network's outputs are not finite: these weights are of no use");
  const double rate = static_cast<double>(total.count) / seconds;
  const auto confusion = ConfusionMatrix(report, model.config.classes.size());
  if (options.json) {
    const nlohmann::ordered_json json = {{"images", total.count}, {"accuracy", total.accuracy()},
                                         {"top5", total.top5()},  {"loss", total.mean_loss()},
                                         {"images_per_s", rate},  {"classes", model.config.classes},
                                         {"confusion", confusion}};
    fmt::print("{}\n", json.dump());
    return 0;
  }
  fmt::print("{} images of {}: top-1 {:.2f} %, top-5 {:.2f} %, loss {:.4f} ({:.1f} images/s)\n",
             total.count, whole ? options.data : options.split, 100 * total.accuracy(),
             100 * total.top5(), total.mean_loss(), rate);
  if (model.config.classes.size() <= kMostPrintedClasses) {
    PrintConfusion(confusion, model.config.classes);
  }
  return 0;
}

}  // namespace parax
