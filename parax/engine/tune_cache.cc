#include "parax/engine/tune_cache.h"

#include <nlohmann/json.hpp>

#include "parax/base/error.h"
#include "parax/base/file.h"
#include "parax/base/log.h"
#include "parax/base/sha256.h"

namespace parax {
namespace {

using Json = nlohmann::json;
constexpr int kFormat = 1;
constexpr size_t kMostBytes = size_t{64} << 20;

}  // namespace

std::filesystem::path TuneCachePath() {
  const std::filesystem::path folder = CacheFolder();
  return folder.empty() ? folder : folder / "tuning.json";
}

TuneCache::TuneCache(std::filesystem::path file) : file_(std::move(file)) {
  if (!Read()) Info("{} is not a cache of tuning results: it is ignored", file_.string());
}

bool TuneCache::Read() {
  std::error_code error;  // of a folder that may not be searched
  if (!std::filesystem::is_regular_file(file_, error)) return true;
  try {
    const Json json = Json::parse(ReadFile(file_, kMostBytes));
    const Json& content = json.at("content");
    if (json.at("format") != kFormat || json.at("hash") != Sha256Of(content.dump())) return false;
    std::map<std::string, OpTimes> times;
    std::map<std::string, TunedPlan> plans;
    for (const auto& [key, value] : content.at("times").items()) {
      times[key] = {value.at(0).get<double>(), value.at(1).get<double>()};
    }
    for (const auto& [key, value] : content.at("plans").items()) {
      plans[key] = {value.at("blocked").get<bool>(), value.at("layouts").get<LayerLayouts>(),
                    value.at("implementations").get<Implementations>(),
                    value.at("kind").get<std::string>()};
    }
    times_.merge(times);
    plans_.merge(plans);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

std::optional<OpTimes> TuneCache::Times(const std::string& key) const {
  const auto it = times_.find(key);
  return it == times_.end() ? std::nullopt : std::optional(it->second);
}

std::optional<TunedPlan> TuneCache::Plan(const std::string& key) const {
  const auto it = plans_.find(key);
  return it == plans_.end() ? std::nullopt : std::optional(it->second);
}

void TuneCache::Save() const {
  if (file_.empty()) return;
  TuneCache all = *this;
  (void)all.Read();
  Json times = Json::object(), plans = Json::object();
  for (const auto& [key, value] : all.times_) times[key] = {value.cold, value.warm};
  for (const auto& [key, value] : all.plans_) {
    plans[key] = {{"blocked", value.blocked},
                  {"layouts", value.layouts},
                  {"implementations", value.implementations},
                  {"kind", value.kind}};
  }
  const Json content = {{"times", times}, {"plans", plans}};
  const Json json = {{"format", kFormat}, {"hash", Sha256Of(content.dump())}, {"content", content}};
  KeepInCache(file_, json.dump(1) + "\n", "what tuning found");
}

}  // namespace parax
