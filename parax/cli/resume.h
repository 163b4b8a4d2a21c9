#pragma once

#include <optional>

#include "parax/cli/metrics.h"
#include "parax/cli/options.h"
#include "parax/data/dataset.h"
#include "parax/engine/checkpoint.h"

namespace parax {

inline constexpr size_t kSketched = 1000;

// What a checkpoint's state.json says of the run besides its tensors.
struct RunState {
  uint64_t step = 0;
  int64_t samples = 0;  // training images
  std::string data;     // DataDigest of them; "": not known
  std::string val;      // of the validation images
  // Sketch of them: kSketched fingerprints.
  std::vector<uint64_t> sketch;
  bool held_out = false;  // the validation images were held out of train/
  std::optional<BestRecord> best;
  int evaluations_without_better = 0;
  std::optional<MetricPoint> owed;  // of `step`: stopped by a signal before its evaluation
  double seconds = 0;               // of training so far, over all sessions
  std::string command;              // line that started the run
  std::string config_toml;          // the resolved options
};
std::string ToJson(const RunState& state);
RunState ParseRunState(const std::string& json, const std::string& where);  // throws Error

// A line saying how many of the split's images are among those that a run learnt from, of which
// `sketch` is known; "": none.
std::string LearntNote(const Split& split, const std::vector<uint64_t>& sketch);

// Where a run goes on from.
struct ResumePoint {
  CheckpointContent content;
  RunState state;
  Options options;  // the run's own, with the flags given now that may change
  std::filesystem::path checkpoint;
};

// The run folder that a checkpoint, or the run folder itself, belongs to.
std::filesystem::path RunFolderOf(const std::filesystem::path& path);

// What --resume asks for; nothing when the run starts afresh. `options.out` must be set. Throws
// UsageError when --out holds checkpoints and nothing says to resume (naming both commands), when
// there is nothing to resume, and when flags were changed that a run can't change on its way.
std::optional<ResumePoint> FindResumePoint(const Options& options);

}  // namespace parax
