#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sstream>

#include "parax/base/error.h"
#include "parax/base/file.h"
#include "parax/base/log.h"
#include "parax/cli/commands.h"
#include "parax/cli/npy.h"
#include "parax/cli/profile_internal.h"
#include "parax/cli/recording.h"
#include "parax/cli/session.h"
#include "parax/data/pipeline.h"
#include "parax/data/probe.h"

namespace parax {
namespace {

namespace fs = std::filesystem;

// Images of a folder and its subfolders, by name.
void AddFolder(const fs::path& folder, std::vector<std::string>& files) {
  std::vector<std::string> found;
  std::set<std::string> seen = {fs::canonical(folder).string()};  // a link may lead back
  fs::recursive_directory_iterator entries(folder, fs::directory_options::follow_directory_symlink);
  for (; entries != fs::recursive_directory_iterator(); ++entries) {
    const fs::path& path = entries->path();
    if (path.filename().string().starts_with(".")) {
      entries.disable_recursion_pending();  // hidden, as in data sets
    } else if (entries->is_directory()) {
      if (!seen.insert(fs::canonical(path).string()).second) entries.disable_recursion_pending();
    } else if (IsImageName(path.filename().string())) {
      found.push_back(path.string());
    }
  }
  std::sort(found.begin(), found.end());
  files.insert(files.end(), found.begin(), found.end());
}

std::vector<std::string> InputFiles(const std::vector<std::string>& inputs) {
  std::vector<std::string> files;
  for (const std::string& input : inputs) {
    if (input == "-") {
      std::istringstream list(std::string(std::istreambuf_iterator<char>(std::cin), {}));
      // `find -print0` ends names so that they may hold line breaks.
      const char end = list.view().find('\0') == std::string_view::npos ? '\n' : '\0';
      for (std::string name; std::getline(list, name, end);) {
        if (end == '\n' && name.ends_with('\r')) name.pop_back();  // a list written on Windows
        if (!name.empty()) files.push_back(name);
      }
    } else if (fs::is_directory(input)) {
      AddFolder(input, files);
    } else {
      files.push_back(input);  // what can't be read is named later
    }
  }
  return files;
}

std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

// Class numbers by falling probability.
std::vector<size_t> Ranking(const float* p, size_t classes, size_t most) {
  std::vector<size_t> order(classes);
  std::iota(order.begin(), order.end(), size_t{0});
  const size_t n = std::min(most, classes);
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(n), order.end(),
                    [p](size_t a, size_t b) { return p[a] != p[b] ? p[a] > p[b] : a < b; });
  order.resize(n);
  return order;
}

std::vector<float> Softmax(const float* logits, size_t classes) {
  const float top = *std::max_element(logits, logits + classes);
  std::vector<float> p(classes);
  double sum = 0;
  for (size_t c = 0; c < classes; ++c) sum += std::exp(static_cast<double>(logits[c]) - top);
  for (size_t c = 0; c < classes; ++c) {
    p[c] = static_cast<float>(std::exp(static_cast<double>(logits[c]) - top) / sum);
  }
  return p;
}

std::string CsvRow(const std::string& file, const std::vector<float>& p,
                   const std::vector<std::string>& classes, size_t top) {
  std::string row = CsvField(file);
  for (const size_t c : Ranking(p.data(), classes.size(), top)) {
    row += fmt::format(",{},{:.6f}", CsvField(classes[c]), p[c]);
  }
  return row + "\n";
}

nlohmann::ordered_json JsonRow(const std::string& file, const std::vector<float>& p,
                               const std::vector<std::string>& classes, size_t top) {
  nlohmann::ordered_json predictions = nlohmann::json::array();
  for (const size_t c : Ranking(p.data(), classes.size(), top)) {
    predictions.push_back({{"class", classes[c]}, {"probability", p[c]}});
  }
  return {{"file", file}, {"predictions", predictions}};
}

// An image that could not be read went through the network as a black one: its logits count too.
void CheckFinite(const std::vector<float>& logits) {
  if (std::ranges::all_of(logits, [](float v) { return std::isfinite(v); })) return;
  Fail("the network's outputs are not finite: these weights are of no use");
}

void Deliver(const Options& options, const std::string& text) {
  if (options.out.empty()) {
    fmt::print("{}", text);
  } else {
    WriteFileAtomically(options.out, text);
  }
}

// Results never take the place of what they are about, or come from.
void CheckOut(const fs::path& out, const fs::path& checkpoint,
              const std::vector<std::string>& files) {
  if (out.empty() || !fs::exists(out)) return;
  std::error_code error;
  const fs::path folder = fs::canonical(out).parent_path();
  if (fs::equivalent(folder, checkpoint, error) || fs::exists(folder / "manifest.json")) {
    FailUsage("--out {} is one of a checkpoint's files: choose another", out.string());
  }
  for (const std::string& file : files) {
    std::error_code none;  // what is not there is no danger
    if (fs::equivalent(out, file, none)) {
      FailUsage("--out {} is one of the files to predict: choose another", out.string());
    }
  }
}

// The raw batch of a .npy file (N, C, H, W, already normalised) to logits.
// Standard output is for the predictions.
void PrintProfile(const Recording& recording) {
  if (const auto profile = recording.ProfileOf(/*training=*/false)) {
    fmt::print(stderr, "{}", ProfileTable(*profile));
  }
}

int PredictNpy(const Options& options, const LoadedModel& model, const std::string& input) {
  if (options.out.extension() != ".npy") FailUsage("predicting a .npy needs --out LOGITS.npy");
  if (options.json) FailUsage("--json is for images: the logits of a .npy go to --out");
  const MappedFile file(input);
  const NpyArray array = ParseNpy(file.bytes(), input);
  const int64_t size = model.config.image_size;
  if (array.shape.size() != 4 || array.shape[1] != 3 || array.shape[2] != size ||
      array.shape[3] != size || array.shape[0] < 1) {
    Fail("{} must be of shape (N, 3, {}, {}), N at least 1", input, size, size);
  }
  if (!std::ranges::all_of(array.values, [](float v) { return std::isfinite(v); })) {
    Fail("{} holds values that are not finite", input);
  }
  const int64_t n = array.shape[0], pixels = size * size;
  std::vector<float> nhwc(array.values.size());
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t c = 0; c < 3; ++c) {
      for (int64_t p = 0; p < pixels; ++p) {
        nhwc[static_cast<size_t>((i * pixels + p) * 3 + c)] =
            array.values[static_cast<size_t>((i * 3 + c) * pixels + p)];
      }
    }
  }
  const Machine machine = PlanMachine(options, static_cast<int>(n));
  const BatchPlan batches =
      EvalBatches(n, static_cast<int>(machine.plan.seats.size()), kEvalMicroBatch);
  Recording recording(options, machine);
  TrainerOptions evaluator = EvaluatorOptions(machine, model.config, options, batches);
  evaluator.trace = recording.trace();
  Trainer trainer(model.graph, std::move(evaluator));
  trainer.Load(model.weights);
  const std::vector<int32_t> labels(static_cast<size_t>(n), 0);
  TensorOptions tensor;
  tensor.plan = batches;
  const auto source = MakeTensorSource({nhwc, labels, pixels * 3}, tensor);
  const EvalReport report = trainer.Evaluate(batches, *source, false, /*want_logits=*/true);
  CheckFinite(report.logits);
  WriteNpy(options.out, {n, static_cast<int64_t>(model.config.classes.size())}, report.logits);
  return 0;
}

}  // namespace

int RunPredict(const Options& options) {
  SetQuiet(options.quiet || options.json);
  if (options.model.empty()) FailUsage("--model is missing: a run folder or checkpoint");
  if (options.inputs.empty()) FailUsage("nothing to predict: name images, folders, '-' or a .npy");
  const bool json = options.json || options.format == "json";
  const LoadedModel model = LoadModel(options.model);
  CheckOut(options.out, model.checkpoint, options.inputs);
  Info("{}", model.line);
  const auto is_array = [](const fs::path& path) { return path.extension() == ".npy"; };
  if (std::ranges::any_of(options.inputs, is_array)) {
    if (options.inputs.size() > 1) FailUsage("a .npy is predicted alone: one file a command");
    return PredictNpy(options, model, options.inputs[0]);
  }
  if (is_array(options.out)) {
    FailUsage("--out {}: an array holds the logits of a .npy; images give CSV or JSON",
              options.out.string());
  }
  const std::vector<std::string> files = InputFiles(options.inputs);
  if (files.empty()) Fail("no images found (jpg, jpeg, png)");
  CheckOut(options.out, model.checkpoint, files);

  const Split split = SplitFromFiles(files);
  const Machine machine =
      PlanMachine(options, static_cast<int>(std::min<int64_t>(split.size(), 4096)));
  const BatchPlan batches =
      EvalBatches(split.size(), static_cast<int>(machine.plan.seats.size()), kEvalMicroBatch);
  Recording recording(options, machine);
  TrainerOptions evaluator = EvaluatorOptions(machine, model.config, options, batches);
  evaluator.trace = recording.trace();
  Trainer trainer(model.graph, std::move(evaluator));
  trainer.Load(model.weights);
  const auto input =
      EvaluationSource(machine, model.config, options, split, batches, trainer.stop());
  const EvalReport report = trainer.Evaluate(batches, *input, false, /*want_logits=*/true);
  PrintProfile(recording);

  const auto& classes = model.config.classes;
  const auto top = static_cast<size_t>(options.top);
  std::string csv = "file";
  for (size_t k = 1; k <= std::min(top, classes.size()); ++k) {
    csv += fmt::format(",class{},probability{}", k, k);
  }
  csv += "\n";
  nlohmann::ordered_json rows = nlohmann::json::array();
  CheckFinite(report.logits);
  size_t broken = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    if (!report.read[i]) {
      ++broken;  // and named where it was decoded
      continue;
    }
    const std::vector<float> p = Softmax(report.logits.data() + i * classes.size(), classes.size());
    if (json) {
      rows.push_back(JsonRow(files[i], p, classes, top));
    } else {
      csv += CsvRow(files[i], p, classes, top);
    }
  }
  if (broken == files.size()) {
    Fail("none of {} files could be read{}", broken,
         options.out.empty() ? "" : fmt::format("; {} is not written", options.out.string()));
  }
  Deliver(options,
          json ? rows.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n" : csv);
  if (broken > 0) Warn("{} of {} files could not be read", broken, files.size());
  return broken > 0 ? 1 : 0;
}

}  // namespace parax
