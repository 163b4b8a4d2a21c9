#include "parax/cli/train_report.h"

#include <fmt/core.h>

#include "parax/base/error.h"
#include "parax/base/log.h"
#include "parax/base/text.h"
#include "parax/cli/resume.h"
#include "parax/engine/safetensors.h"
#include "parax/engine/weights.h"

namespace parax {

TensorMap InitialWeights(const TrainSetup& setup) {
  const std::filesystem::path& from = setup.options.init_from;
  TensorMap tensors;
  std::string source = from.string();
  if (std::filesystem::is_directory(from)) {
    LoadedModel model = LoadModel(from.string());
    Info("{}", model.line);
    source = model.checkpoint.string();
    if (!model.state_json.empty()) {
      const RunState state = ParseRunState(model.state_json, source + "/state.json");
      const std::string learnt = LearntNote(setup.selection(), state.sketch);
      if (!learnt.empty()) Warn("validation: {}", learnt);
    }
    tensors = std::move(model.weights);
    const std::string& name = model.config.model.name;
    if (name != setup.config.model.name) {
      source += fmt::format(", a {} where --model is {},", name, setup.config.model.name);
    }
  } else {
    tensors = ReadSafetensors(from).tensors;
  }
  InitFromResult result = InitFrom(setup.graph, std::move(tensors), source, setup.options.seed);
  if (!result.line.empty()) Info("{}", result.line);
  return std::move(result.tensors);
}

std::vector<int64_t> ConfusionMatrix(const EvalReport& eval, size_t classes) {
  std::vector<int64_t> counts(classes * classes, 0);
  for (size_t i = 0; i < eval.labels.size(); ++i) {
    if (!eval.read[i]) continue;
    ++counts[static_cast<size_t>(eval.labels[i]) * classes +
             static_cast<size_t>(eval.predicted[i])];
  }
  return counts;
}

std::vector<std::string> UsageLines(const TrainSetup& setup, const std::filesystem::path& weights,
                                    bool finished) {
  const std::string out = ShellWord(setup.options.out.string());
  const std::string& name = setup.config.model.name;
  std::vector<std::string> lines;
  if (!setup.synthetic) {
    lines.push_back(
        fmt::format("parax eval --model {} --data {}", out, ShellWord(setup.options.data)));
  }
  lines.push_back(fmt::format("parax predict --model {} IMAGE_OR_FOLDER", out));
  if (!finished) lines.push_back(fmt::format("parax train --out {} --resume", out));
  const bool of_torchvision = Resolved(ModelSpec{.name = name}).image_size == 224;
  if (name.starts_with("resnet:") || !of_torchvision) return lines;
  lines.push_back(
      fmt::format("python3 -c \"import sys, torchvision, safetensors.torch as s; m = "
                  "torchvision.models.{}(num_classes={}); "
                  "m.load_state_dict(s.load_file(sys.argv[1]))\" {}",
                  name, setup.config.classes.size(), ShellWord(weights.string())));
  return lines;
}

std::vector<std::string> MachineFacts(const TrainSetup& setup, const MemoryEstimate& memory) {
  return {MachineLine(setup.machine), MachineKey(),
          fmt::format("predicted peak memory {}", HumanBytes(static_cast<double>(memory.total())))};
}

}  // namespace parax
