#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "parax/engine/tensors.h"

// A run folder keeps checkpoints/step-N/ {model.safetensors, ema.safetensors (with EMA),
// optimizer.safetensors, config.json, state.json, plan.json, manifest.json}. The manifest holds
// each file's size and SHA-256: a checkpoint is WHOLE when all files are as it says, so a file cut
// at any byte is found out. Nothing is ever loaded from one that is not.
namespace parax {

struct CheckpointContent {
  TensorMap model;
  TensorMap ema;  // empty: no EMA
  TensorMap optimizer;
  std::string config_json, state_json, plan_json;
};

// What a checkpoint is read for: prediction needs (and checks) only model, EMA and configuration.
enum class CheckpointUse : uint8_t { kPredict, kResume };

// Writes checkpoints/step-N under a temporary name, syncs, renames; a checkpoint of that name is
// replaced. On failure (disk full ...) throws Error, and everything is as before. Returns its path.
std::filesystem::path SaveCheckpoint(const std::filesystem::path& checkpoints, int64_t step,
                                     const CheckpointContent& content);

// Why the checkpoint is not whole, in one line; "" when it is.
std::string CheckpointDamage(const std::filesystem::path& checkpoint,
                             CheckpointUse use = CheckpointUse::kResume);

// Throws Error naming the damage when it is not whole. For kPredict only model, ema and config_json
// are filled, and state_json when it is whole (else a warning says so).
CheckpointContent LoadCheckpoint(const std::filesystem::path& checkpoint, CheckpointUse use);

struct CheckpointEntry {
  int64_t step = 0;
  std::filesystem::path path;
};
// Every step-N in the folder, whole or not, by ascending N; none when the folder is not there.
std::vector<CheckpointEntry> ListCheckpoints(const std::filesystem::path& checkpoints);

// Warns in one line for each newer one that is damaged.
std::optional<CheckpointEntry> FindNewestWhole(const std::filesystem::path& checkpoints);

// The best checkpoint so far, kept as checkpoints/best.json.
struct BestRecord {
  int64_t step = 0;
  std::string metric;
  double value = 0;
};
void WriteBest(const std::filesystem::path& checkpoints, const BestRecord& best);
std::optional<BestRecord> ReadBest(const std::filesystem::path& checkpoints);  // nullopt: none

// Keeps the newest `keep` (at least 1) checkpoints up to step `saved`, the one just saved, the
// best, and those beyond `saved` (left from before a resume) that are whole; removes the others.
void PruneCheckpoints(const std::filesystem::path& checkpoints, int keep, int64_t saved);

// The checkpoint that a --model argument means: itself, or a run folder's best, else its newest
// whole one. `line` says which and why. Throws UsageError when the path is neither.
struct ResolvedModel {
  std::filesystem::path checkpoint;
  std::string line;
};
ResolvedModel ResolveModelArgument(const std::filesystem::path& path);

}  // namespace parax
