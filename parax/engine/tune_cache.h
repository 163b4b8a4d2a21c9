#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "parax/engine/op_timer.h"
#include "parax/engine/plan.h"

namespace parax {

// What tuning chose for one network.
struct TunedPlan {
  bool blocked = false;  // layers that `layouts` does not name
  LayerLayouts layouts;
  Implementations implementations;  // of the training plan; empty: the fixed rules
  // Layouts: "mixed", "nhwc" or "blocked"; and ", tuned" where whole steps chose the kernels.
  std::string kind;
};

// Times of ops and choices for networks, of any number of machines: a file that may be copied to
// machines of the same kind. A missing file is an empty one; so is a broken one or one of another
// format, after one line that says so.
class TuneCache {
 public:
  explicit TuneCache(std::filesystem::path file);  // "": nothing is kept

  // Keys name the machine too (MachineKey) and everything else that the value depends on.
  std::optional<OpTimes> Times(const std::string& key) const;
  void SetTimes(const std::string& key, const OpTimes& times) { times_[key] = times; }
  std::optional<TunedPlan> Plan(const std::string& key) const;
  void SetPlan(const std::string& key, const TunedPlan& plan) { plans_[key] = plan; }

  // Adds what is known here to the file, atomically; what others wrote since stays. A file that
  // can't be written is done without, after one line that says so.
  void Save() const;

 private:
  bool Read();  // into the maps, where they have no entry; false: broken
  std::filesystem::path file_;
  std::map<std::string, OpTimes> times_;
  std::map<std::string, TunedPlan> plans_;
};

// tuning.json in CacheFolder(); "" without a home.
std::filesystem::path TuneCachePath();

}  // namespace parax
