#include "parax/engine/layout_choice.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "parax/base/error.h"
#include "parax/base/file.h"
#include "parax/base/log.h"
#include "parax/base/sha256.h"
#include "parax/data/pipeline.h"
#include "parax/engine/plan_record.h"
#include "parax/engine/weights.h"

namespace parax {
namespace {

constexpr uint64_t kWarmUp = 1;
constexpr uint64_t kTimed = 3;
constexpr double kEnoughSeconds = 2;  // of timed iterations, a layout

// What the answer depends on.
std::string Key(const Graph& graph, const TrainerOptions& options) {
  std::string text =
      fmt::format("{};{};{};{};{}", MachineKey(), options.train.micro_batch, options.seats.size(),
                  options.seats[0].pus.size(), options.winograd);
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Graph::Node& node = graph.nodes()[n];
    text += ";";
    text += node.layer->kind();
    for (const int64_t d : graph.dims(node.output)) text += fmt::format(",{}", d);
    for (const ParamSpec& param : node.layer->Params()) {
      for (const int64_t d : param.dims) text += fmt::format("x{}", d);
    }
  }
  Sha256 digest;
  digest.Update(std::as_bytes(std::span(text)));
  return digest.Finish().substr(0, 16);
}

nlohmann::json ReadCache(const std::filesystem::path& cache) {
  std::error_code error;  // of a folder that may not be searched
  if (!std::filesystem::is_regular_file(cache, error)) return nlohmann::json::object();
  try {
    const auto json = nlohmann::json::parse(ReadFile(cache, size_t{1} << 20));
    if (json.is_object()) return json;
  } catch (const std::exception&) {
    // A broken cache is an empty one.
  }
  return nlohmann::json::object();
}

double SecondsPerIteration(const Graph& graph, TrainerOptions options, bool blocked) {
  options.blocked = blocked;
  options.eval_sizes.clear();
  if (options.train.samples >= options.train.batch) {
    options.train.samples = options.train.batch * 100;
  }
  const Dims image = graph.dims(0);
  Trainer trainer(graph, options);
  trainer.Load(InitTensors(graph, options.seed));
  const auto input = MakeSyntheticSource(image[2], image[3], image[1], options.loss.classes,
                                         options.train, options.seed);
  std::vector<Clock::time_point> ends;
  const auto report = [&](const StepReport&) { ends.push_back(Clock::now()); };
  const auto enough = [&] {
    return ends.size() > kWarmUp &&
           std::chrono::duration<double>(ends.back() - ends[kWarmUp - 1]).count() > kEnoughSeconds;
  };
  const TrainEnd end = trainer.Train(kWarmUp + kTimed, *input, report, enough);
  if (end.outcome != Outcome::kOk) Fail("timing a layout failed: {}", end.reason);
  double least = INFINITY;  // noise only ever adds
  for (size_t i = kWarmUp; i < ends.size(); ++i) {
    least = std::min(least, std::chrono::duration<double>(ends[i] - ends[i - 1]).count());
  }
  return least;
}

}  // namespace

std::filesystem::path LayoutCachePath() {
  const std::filesystem::path folder = CacheFolder();
  return folder.empty() ? folder : folder / "layouts.json";
}

bool BlockedIsFaster(const Graph& graph, const TrainerOptions& options,
                     const std::filesystem::path& cache) {
  nlohmann::json known = ReadCache(cache);
  const std::string key = Key(graph, options);
  if (known.contains(key) && known[key].is_boolean()) return known[key].get<bool>();
  TrainerOptions probe = options;
  probe.trace = nullptr;  // it is of the run, not of what is tried before
  probe.plan = {};
  probe.learning_rate = [](uint64_t) { return 0.0; };
  probe.loss.probabilities = false;
  Info("timing the two memory layouts, once for this network, batch and machine ...");
  const double last = SecondsPerIteration(graph, probe, false);
  const double blocked = SecondsPerIteration(graph, probe, true);
  Info("layout timed: channels-last {:.1f} ms, blocked {:.1f} ms a step", 1e3 * last,
       1e3 * blocked);
  known[key] = blocked < last;
  std::error_code none;  // of a folder that may not be searched; a pipe must not be written to
  const auto kind = std::filesystem::status(cache, none).type();
  using Kind = std::filesystem::file_type;
  if (!cache.empty() && (kind == Kind::regular || kind == Kind::not_found)) {
    try {
      std::filesystem::create_directories(cache.parent_path());
      WriteFileAtomically(cache, known.dump(1) + "\n");
    } catch (const std::exception& error) {
      Info("the answer is not kept: {}", error.what());
    }
  }
  return blocked < last;
}

}  // namespace parax
