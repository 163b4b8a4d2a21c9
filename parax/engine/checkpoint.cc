#include "parax/engine/checkpoint.h"

#include <fcntl.h>
#include <stdio.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "parax/base/error.h"
#include "parax/base/file.h"
#include "parax/base/log.h"
#include "parax/base/sha256.h"
#include "parax/engine/safetensors.h"

namespace parax {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Pieces = std::vector<std::span<const std::byte>>;

constexpr char kModel[] = "model.safetensors", kEma[] = "ema.safetensors",
               kOptimizer[] = "optimizer.safetensors", kConfig[] = "config.json",
               kState[] = "state.json", kPlan[] = "plan.json", kManifest[] = "manifest.json",
               kBest[] = "best.json";

// Hidden names: work in progress or on its way out, never a checkpoint.
fs::path TemporaryPath(const fs::path& checkpoints, int64_t step) {
  return checkpoints / fmt::format(".step-{}.tmp", step);
}
fs::path StepPath(const fs::path& checkpoints, int64_t step) {
  return checkpoints / fmt::format("step-{}", step);
}

std::string Digest(const Pieces& pieces) {
  Sha256 sha;
  for (const auto& piece : pieces) sha.Update(piece);
  return sha.Finish();
}

Pieces AsPieces(const std::string& text) { return {std::as_bytes(std::span(text))}; }

void WriteFiles(const fs::path& folder, const CheckpointContent& content) {
  Json manifest = Json::object();
  const auto write = [&](const char* name, const Pieces& pieces) {
    size_t bytes = 0;
    for (const auto& piece : pieces) bytes += piece.size();
    WriteFileAtomically(folder / name, pieces);
    manifest[name] = {{"bytes", bytes}, {"sha256", Digest(pieces)}};
  };
  const Metadata metadata = {{"format", "pt"}};  // what transformers asks for
  write(kModel, MakeSafetensors(content.model, metadata).pieces());
  if (!content.ema.empty()) write(kEma, MakeSafetensors(content.ema, metadata).pieces());
  write(kOptimizer, MakeSafetensors(content.optimizer).pieces());
  write(kConfig, AsPieces(content.config_json));
  write(kState, AsPieces(content.state_json));
  write(kPlan, AsPieces(content.plan_json));
  // It ends with its closing brace: cut anywhere, it is no JSON.
  WriteFileAtomically(folder / kManifest, Json{{"files", manifest}}.dump(1));
}

// Puts the finished folder `from` at `to`; one that was there ends up at `from`.
void Replace(const fs::path& from, const fs::path& to) {
  if (!fs::exists(to)) return fs::rename(from, to);
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
  const fs::path aside = from.string() + ".old";  // file systems that cannot exchange
  fs::rename(to, aside);
  fs::rename(from, to);
  fs::rename(aside, from);
}

// What kills left behind.
void RemoveTemporaries(const fs::path& checkpoints) {
  std::vector<fs::path> stale;
  for (const auto& entry : fs::directory_iterator(checkpoints)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(".step-") || name.starts_with("best.json.tmp-")) {
      stale.push_back(entry.path());
    }
  }
  for (const fs::path& path : stale) fs::remove_all(path);
}

// First renamed, so that a kill in between leaves no half of a checkpoint under its name.
void Remove(const fs::path& checkpoints, int64_t step) {
  const fs::path temporary = TemporaryPath(checkpoints, step);
  fs::rename(StepPath(checkpoints, step), temporary);
  fs::remove_all(temporary);
}

std::vector<std::string> NeededFiles(CheckpointUse use, const Json& files) {
  std::vector<std::string> needed = {kConfig, kModel};
  if (files.contains(kEma)) needed.emplace_back(kEma);
  if (use == CheckpointUse::kResume) {
    needed.insert(needed.end(), {kOptimizer, kState, kPlan});
  }
  return needed;
}

// The manifest's files; throws Error or Json::exception when it is broken.
Json ReadManifest(const fs::path& checkpoint) {
  return Json::parse(ReadFile(checkpoint / kManifest)).at("files");
}

// Both throw Error, or Json::exception for a broken manifest.
void VerifyFile(const fs::path& checkpoint, const std::string& name, const Json& files, bool hash) {
  const Json& wanted = files.at(name);
  const MappedFile file(checkpoint / name);
  if (file.bytes().size() != wanted.at("bytes").get<size_t>()) {
    Fail("{} has {} bytes instead of {}", name, file.bytes().size(),
         wanted.at("bytes").get<size_t>());
  }
  if (hash && Digest({file.bytes()}) != wanted.at("sha256").get<std::string>()) {
    Fail("{} is not what was saved (its SHA-256 differs)", name);
  }
}

void Verify(const fs::path& checkpoint, CheckpointUse use, bool hash) {
  const Json files = ReadManifest(checkpoint);
  for (const std::string& name : NeededFiles(use, files)) VerifyFile(checkpoint, name, files, hash);
}

// "" when it is damaged or missing, with a warning: prediction does without.
std::string ReadState(const fs::path& checkpoint) {
  try {
    VerifyFile(checkpoint, kState, ReadManifest(checkpoint), /*hash=*/true);
    return ReadFile(checkpoint / kState);
  } catch (const std::exception& error) {
    Warn("{} is not used: {}", (checkpoint / kState).string(), error.what());
    return "";
  }
}

std::string Damage(const fs::path& checkpoint, CheckpointUse use, bool hash) {
  try {
    Verify(checkpoint, use, hash);
  } catch (const Error& error) {
    return error.what();
  } catch (const Json::exception&) {
    return fmt::format("{} is broken", kManifest);
  }
  return "";
}

bool IsCheckpoint(const fs::path& path) { return fs::exists(path / kModel); }

}  // namespace

fs::path SaveCheckpoint(const fs::path& checkpoints, int64_t step,
                        const CheckpointContent& content) {
  const fs::path temporary = TemporaryPath(checkpoints, step);
  const fs::path final_path = StepPath(checkpoints, step);
  try {
    fs::create_directories(checkpoints);
    RemoveTemporaries(checkpoints);
    fs::create_directory(temporary);
    WriteFiles(temporary, content);
    Replace(temporary, final_path);
    SyncFolder(checkpoints);
    fs::remove_all(temporary);  // the replaced one, if any
  } catch (const std::exception& error) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    Fail("checkpoint {} was not saved: {}", final_path.string(), error.what());
  }
  return final_path;
}

std::string CheckpointDamage(const fs::path& checkpoint, CheckpointUse use) {
  return Damage(checkpoint, use, /*hash=*/true);
}

CheckpointContent LoadCheckpoint(const fs::path& checkpoint, CheckpointUse use) {
  const std::string damage = CheckpointDamage(checkpoint, use);
  if (!damage.empty()) Fail("checkpoint {} is damaged: {}", checkpoint.string(), damage);
  CheckpointContent content;
  content.model = ReadSafetensors(checkpoint / kModel).tensors;
  content.config_json = ReadFile(checkpoint / kConfig);
  if (ReadManifest(checkpoint).contains(kEma)) {
    content.ema = ReadSafetensors(checkpoint / kEma).tensors;
  }
  content.state_json = ReadState(checkpoint);
  if (use == CheckpointUse::kResume) {
    content.optimizer = ReadSafetensors(checkpoint / kOptimizer).tensors;
    content.plan_json = ReadFile(checkpoint / kPlan);
  }
  return content;
}

std::vector<CheckpointEntry> ListCheckpoints(const fs::path& checkpoints) {
  std::vector<CheckpointEntry> entries;
  if (!fs::is_directory(checkpoints)) return entries;
  for (const auto& entry : fs::directory_iterator(checkpoints)) {
    const std::string name = entry.path().filename();
    int64_t step = -1;
    const char* end = name.data() + name.size();
    if (!name.starts_with("step-") || std::from_chars(name.data() + 5, end, step).ptr != end ||
        step < 0) {
      continue;
    }
    entries.push_back({step, entry.path()});
  }
  std::ranges::sort(entries, {}, &CheckpointEntry::step);
  return entries;
}

std::optional<CheckpointEntry> FindNewestWhole(const fs::path& checkpoints) {
  std::vector<CheckpointEntry> entries = ListCheckpoints(checkpoints);
  for (; !entries.empty(); entries.pop_back()) {
    const std::string damage = CheckpointDamage(entries.back().path);
    if (damage.empty()) return entries.back();
    Warn("checkpoint {} is damaged and not used: {}", entries.back().path.string(), damage);
  }
  return std::nullopt;
}

void WriteBest(const fs::path& checkpoints, const BestRecord& best) {
  const Json json = {{"step", best.step}, {"metric", best.metric}, {"value", best.value}};
  WriteFileAtomically(checkpoints / kBest, json.dump(1));
}

std::optional<BestRecord> ReadBest(const fs::path& checkpoints) {
  if (!fs::exists(checkpoints / kBest)) return std::nullopt;
  try {
    const Json json = Json::parse(ReadFile(checkpoints / kBest));
    return BestRecord{json.at("step"), json.at("metric"), json.at("value")};
  } catch (const Json::exception&) {
    Warn("{} is broken and not used", (checkpoints / kBest).string());
    return std::nullopt;
  }
}

void PruneCheckpoints(const fs::path& checkpoints, int keep, int64_t saved) {
  const std::optional<BestRecord> best = ReadBest(checkpoints);
  std::vector<CheckpointEntry> entries = ListCheckpoints(checkpoints);
  std::ranges::reverse(entries);
  int kept = 0;
  try {
    for (const CheckpointEntry& entry : entries) {
      const bool keeps =
          entry.step > saved ? CheckpointDamage(entry.path).empty() : kept++ < std::max(keep, 1);
      if (!keeps && !(best && best->step == entry.step)) Remove(checkpoints, entry.step);
    }
  } catch (const fs::filesystem_error& error) {
    Warn("an old checkpoint could not be removed: {}", error.what());
  }
}

ResolvedModel ResolveModelArgument(const fs::path& path) {
  if (IsCheckpoint(path)) return {path, fmt::format("model: checkpoint {}", path.string())};
  const fs::path checkpoints = fs::is_directory(path / "checkpoints") ? path / "checkpoints" : path;
  if (ListCheckpoints(checkpoints).empty()) {
    FailUsage("{} is neither a checkpoint nor a run folder with checkpoints{}", path.string(),
              IsCheckpoint(path.parent_path()) ? ": name its folder" : "");
  }
  if (const std::optional<BestRecord> best = ReadBest(checkpoints)) {
    const fs::path chosen = StepPath(checkpoints, best->step);
    const std::string damage = Damage(chosen, CheckpointUse::kPredict, /*hash=*/false);
    if (damage.empty()) {
      return {chosen, fmt::format("model: the best checkpoint, {} ({} {:.4g})", chosen.string(),
                                  best->metric, best->value)};
    }
    Warn("the best checkpoint {} is damaged and not used: {}", chosen.string(), damage);
  }
  const std::optional<CheckpointEntry> last = FindNewestWhole(checkpoints);
  if (!last) Fail("no checkpoint in {} is whole", checkpoints.string());
  return {last->path, fmt::format("model: the last checkpoint, {}", last->path.string())};
}

}  // namespace parax
