#include "parax/numa/bandwidth.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "parax/base/core_loss.h"
#include "parax/base/file.h"
#include "parax/base/log.h"
#include "parax/base/stop.h"
#include "parax/numa/arena.h"

namespace parax {
namespace {

using Json = nlohmann::json;
constexpr int kFormat = 1;
constexpr size_t kMostFileBytes = size_t{16} << 20;

// Small enough that memcpy writes as kernels do, through the caches.
constexpr size_t kPiece = size_t{64} << 10;
constexpr size_t kLeastBytes = size_t{64} << 20, kMostBytes = size_t{512} << 20;  // of one side
constexpr size_t kLeastOfACore = size_t{16} << 20;
constexpr int kParts = 3;  // of which the best counts: a disturbance is no property of the memory
constexpr double kSeconds = 0.8, kMostOfAPoint = 0.1;

size_t BufferBytes(size_t cores) {
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);  // 0 or -1: not known
  const size_t wanted =
      std::max<size_t>(2 * static_cast<size_t>(std::max(cache, 0L)), cores * kLeastOfACore);
  return std::clamp(wanted, kLeastBytes, kMostBytes);
}

// Copies its share of the buffer over and over for `seconds`; bytes a second.
double CopyFor(std::byte* to, const std::byte* from, size_t bytes, double seconds) {
  const Clock::time_point begin = Clock::now();
  double copied = 0, elapsed = 0;
  for (size_t at = 0; elapsed < seconds; at = at + 2 * kPiece <= bytes ? at + kPiece : 0) {
    std::memcpy(to + at, from + at, kPiece);
    copied += kPiece;
    elapsed = SecondsSince(begin);
  }
  return 2 * copied / elapsed;
}

double MeasurePoint(const std::vector<int>& pus, const Arena& from, const Arena& to, double seconds,
                    double& lost) {
  const size_t share = from.size() / pus.size() / kPiece * kPiece;
  std::vector<std::array<double, kParts>> rates(pus.size());
  std::vector<double> losses(pus.size());
  std::barrier start(static_cast<std::ptrdiff_t>(pus.size()));
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < pus.size(); ++i) {
    threads.emplace_back([&, i] {
      if (pus[i] >= 0) (void)BindThread({pus[i]});
      CoreLoss loss;
      loss.Begin();
      for (double& rate : rates[i]) {
        start.arrive_and_wait();
        rate = CopyFor(to.data() + i * share, from.data() + i * share, share, seconds / kParts);
      }
      losses[i] = loss.Part();
    });
  }
  threads.clear();  // joins
  lost = std::max(lost, *std::ranges::max_element(losses));
  double best = 0;
  for (size_t part = 0; part < kParts; ++part) {
    double sum = 0;
    for (const auto& rate : rates) sum += rate[part];
    best = std::max(best, sum);
  }
  return best;
}

Json ReadCache(const std::filesystem::path& file) {
  const Json empty = {{"format", kFormat}, {"bytes_per_s", Json::object()}};
  std::error_code none;  // of a folder that may not be searched
  if (!std::filesystem::is_regular_file(file, none)) return empty;
  try {
    const Json json = Json::parse(ReadFile(file, kMostFileBytes));
    if (json.at("format") == kFormat && json.at("bytes_per_s").is_object()) return json;
  } catch (const std::exception&) {
  }
  Info("{} does not hold measured bandwidths: it is ignored", file.string());
  return empty;
}

}  // namespace

std::filesystem::path BandwidthCachePath() {
  const std::filesystem::path folder = CacheFolder();
  return folder.empty() ? folder : folder / "bandwidth.json";
}

std::vector<double> MeasureCopyBandwidth(const std::vector<Seat>& seats, int os_node,
                                         double* lost) {
  std::vector<int> pus;
  for (const Seat& seat : seats) {
    for (const int pu : seat.pus) pus.push_back(seat.bind ? pu : -1);
  }
  const Arena from(BufferBytes(pus.size()), {.os_node = os_node});
  const Arena to(from.size(), {.os_node = os_node});
  const double seconds = std::min(kMostOfAPoint, kSeconds / static_cast<double>(seats.size()));
  std::vector<double> bandwidth;
  double most_lost = 0;
  size_t count = 0;
  for (const Seat& seat : seats) {
    count += seat.pus.size();
    const std::vector<int> first(pus.begin(), pus.begin() + static_cast<std::ptrdiff_t>(count));
    bandwidth.push_back(MeasurePoint(first, from, to, seconds, most_lost));
  }
  if (lost != nullptr) *lost = most_lost;
  return bandwidth;
}

std::vector<double> CopyBandwidth(const std::vector<Seat>& seats, int os_node,
                                  const std::string& machine, const std::filesystem::path& file,
                                  double most_lost) {
  std::string key = fmt::format("{}; node {}; seats", machine, os_node);
  for (const Seat& seat : seats) key += " " + CpuList(seat.pus);
  Json json = ReadCache(file);
  try {
    const auto known = json["bytes_per_s"].find(key);
    if (known != json["bytes_per_s"].end()) {
      auto values = known->get<std::vector<double>>();
      const auto positive = [](double value) { return value > 0; };
      if (values.size() == seats.size() && std::ranges::all_of(values, positive)) return values;
    }
  } catch (const Json::exception&) {  // of another type: measured anew
  }
  double lost = 0;
  const std::vector<double> measured = MeasureCopyBandwidth(seats, os_node, &lost);
  if (lost > most_lost) {
    Info("other programs ran while the memory's bandwidth was measured: the result is not kept");
    return measured;
  }
  json = ReadCache(file);  // what others wrote meanwhile stays
  json["bytes_per_s"][key] = measured;
  KeepInCache(file, json.dump(1) + "\n", "the measured bandwidth");
  return measured;
}

}  // namespace parax
