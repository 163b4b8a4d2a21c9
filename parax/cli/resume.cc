#include "parax/cli/resume.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "parax/base/error.h"
#include "parax/base/log.h"

namespace parax {
namespace {

namespace fs = std::filesystem;

// Flags that leave the run's bits as they are. Everything else given anew must be as it was.
bool MayChange(const std::string& key, const std::string& was, const std::string& now) {
  static const std::set<std::string> kFree = {
      "out",  "workers",  "decode-cores", "keep", "save-every",  "eval-every", "quiet",
      "json", "patience", "data",         "plan", "best-metric", "gate",       "defer-memory"};
  if (key == "schedule-policy") {  // which of them decides how many threads an instance has
    const auto barriered = [](const std::string& line) {
      return line.find("barriered") != std::string::npos;
    };
    return barriered(was) == barriered(now);
  }
  return kFree.contains(key);
}

// Flags of which 0 leaves the choice to the program: the run has made it.
bool MeansChosen(const std::string& key) { return key == "instances" || key == "classes"; }

bool SameFolder(const fs::path& a, const fs::path& b) {
  std::error_code none;
  return fs::equivalent(a, b, none);
}

std::map<std::string, std::string> Lines(const std::string& toml) {
  std::map<std::string, std::string> lines;
  std::istringstream in(toml);
  for (std::string line; std::getline(in, line);) {
    const size_t equals = line.find('=');
    if (equals == std::string::npos || line.starts_with('#')) continue;
    std::string key = line.substr(0, equals);
    key.erase(key.find_last_not_of(" \t") + 1);
    lines[key] = line;
  }
  return lines;
}

std::string Value(const std::string& line) {
  const size_t equals = line.find("= ");
  return equals == std::string::npos ? "not given" : line.substr(equals + 2);
}

// The run's options, with those given now put over them.
Options Merge(const Options& now, const RunState& state, const std::string& where) {
  auto lines = Lines(state.config_toml);
  const std::string data = FromToml(state.config_toml, where).data;
  const auto given = Lines(ToToml(now));
  std::string refused;
  for (const auto& [key, text] : now.given) {
    const auto it = given.find(key);
    const bool chosen = it != given.end() && it->second.ends_with("= 0") && MeansChosen(key);
    if (it == given.end() || lines[key] == it->second || chosen) continue;
    if (!MayChange(key, lines[key], it->second)) {
      refused += fmt::format("{}--{} (was {}, now {})", refused.empty() ? "" : ", ", key,
                             Value(lines[key]), Value(it->second));
    } else if (key != "out" && !(key == "data" && SameFolder(now.data, data))) {
      Info("changed for the rest of the run: {}", it->second);
    }
    lines[key] = it->second;
  }
  if (!refused.empty()) {
    FailUsage(
        "a run keeps its {}: leave {} out, or start a new run, with --init-from this one's "
        "weights if you like",
        refused, refused.find(", --") == std::string::npos ? "it" : "them");
  }
  std::string toml;
  for (const auto& [key, line] : lines) toml += line + "\n";
  Options merged = FromToml(toml, where);
  merged.command = now.command;
  merged.command_line = now.command_line;
  merged.out = now.out;
  merged.resume = now.resume;
  merged.given = now.given;
  merged.quiet = now.quiet;
  merged.json = now.json;
  return merged;
}

// runs/a/checkpoints is runs/a.
fs::path WithoutCheckpoints(const fs::path& path) {
  return ListCheckpoints(path).empty() ? path : fs::absolute(path / "..").lexically_normal();
}

std::optional<fs::path> WantedCheckpoint(const Options& options) {
  const fs::path checkpoints = options.out / "checkpoints";
  const bool has_some = !ListCheckpoints(checkpoints).empty();
  if (fs::exists(options.out / "manifest.json")) {
    FailUsage("--out {} is a checkpoint: choose a run folder", options.out.string());
  }
  if (!options.resume) {
    if (has_some) {
      FailUsage("{} holds a run already: add --resume to go on with it, or choose another --out",
                options.out.string());
    }
    return std::nullopt;
  }
  if (*options.resume == "auto" && !has_some) return std::nullopt;
  if (options.resume->empty() || *options.resume == "auto") {
    const auto newest = FindNewestWhole(checkpoints);
    if (newest) return newest->path;
    if (*options.resume == "auto") {
      Warn("no checkpoint in {} is whole: starting from the beginning", checkpoints.string());
      return std::nullopt;
    }
    FailUsage("--resume: no whole checkpoint in {}; to start a run, leave --resume out",
              checkpoints.string());
  }
  const fs::path path = WithoutCheckpoints(*options.resume);
  std::error_code error;
  if (has_some && !fs::equivalent(RunFolderOf(path), options.out, error)) {
    FailUsage("{} holds another run than {}: choose another --out", options.out.string(),
              path.string());
  }
  if (fs::exists(path / "checkpoints")) {
    const auto newest = FindNewestWhole(path / "checkpoints");
    if (!newest) FailUsage("--resume {}: no whole checkpoint there", path.string());
    return newest->path;
  }
  if (!fs::exists(path / "state.json")) {
    FailUsage("--resume {} is neither a checkpoint nor a run folder", path.string());
  }
  return path;
}

}  // namespace

std::string ToJson(const RunState& state) {
  nlohmann::ordered_json json = {{"format", 1},
                                 {"step", state.step},
                                 {"samples", state.samples},
                                 {"data", state.data},
                                 {"val", state.val},
                                 {"sketch", state.sketch},
                                 {"held_out", state.held_out},
                                 {"evaluations_without_better", state.evaluations_without_better},
                                 {"seconds", state.seconds},
                                 {"command", state.command},
                                 {"config", state.config_toml}};
  if (state.best) {
    json["best"] = {
        {"step", state.best->step}, {"metric", state.best->metric}, {"value", state.best->value}};
  }
  if (state.owed) json["owed"] = nlohmann::json::parse(ToJsonLine(*state.owed));
  return json.dump(2) + "\n";
}

RunState ParseRunState(const std::string& text, const std::string& where) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    if (json.at("format") != 1) Fail("{}: format {} is not 1", where, json.at("format").dump());
    RunState state;
    if (!json.at("step").is_number_unsigned()) Fail("{}: \"step\" is no step's number", where);
    json.at("step").get_to(state.step);
    json.at("samples").get_to(state.samples);
    state.data = json.value("data", "");
    state.val = json.value("val", "");
    state.sketch = json.value("sketch", std::vector<uint64_t>());
    state.held_out = json.value("held_out", true);
    json.at("evaluations_without_better").get_to(state.evaluations_without_better);
    json.at("seconds").get_to(state.seconds);
    state.command = json.value("command", "");
    json.at("config").get_to(state.config_toml);
    if (json.contains("best")) {
      const auto& best = json.at("best");
      state.best = BestRecord{best.at("step"), best.at("metric"), best.at("value")};
    }
    if (json.contains("owed")) state.owed = ParseMetricLine(json["owed"].dump());
    return state;
  } catch (const nlohmann::json::exception& e) {
    Fail("{} is not a run's state: {}", where, e.what());
  }
}

std::string LearntNote(const Split& split, const std::vector<uint64_t>& sketch) {
  const bool complete = sketch.size() < kSketched;
  int64_t known = 0, judged = 0;
  for (int64_t i = 0; i < split.size() && !sketch.empty(); ++i) {
    if (!complete && split.fingerprint(i) > sketch.back()) continue;
    ++judged;
    known += std::ranges::binary_search(sketch, split.fingerprint(i)) ? 1 : 0;
  }
  if (known == 0) return "";
  const double share = static_cast<double>(known) / static_cast<double>(judged);
  return fmt::format(
      "{}{:.0f} % of these {} images are among those that the model has learnt from: "
      "accuracy says too much",
      complete ? "" : "about ", std::max(1.0, 100 * share), split.size());
}

std::filesystem::path RunFolderOf(const std::filesystem::path& path) {
  const fs::path run = WithoutCheckpoints(path);
  if (fs::exists(run / "checkpoints")) return run;
  const fs::path checkpoint = fs::absolute(path / "").parent_path();  // without a slash behind it
  return checkpoint.parent_path().parent_path();
}

std::optional<ResumePoint> FindResumePoint(const Options& options) {
  const std::optional<fs::path> checkpoint = WantedCheckpoint(options);
  if (!checkpoint) return std::nullopt;
  ResumePoint point;
  point.checkpoint = *checkpoint;
  point.content = LoadCheckpoint(*checkpoint, CheckpointUse::kResume);
  const std::string where = (*checkpoint / "state.json").string();
  point.state = ParseRunState(point.content.state_json, where);
  point.options = Merge(options, point.state, where);
  return point;
}

}  // namespace parax
