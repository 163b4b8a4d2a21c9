#include "parax/cli/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "parax/base/error.h"
#include "parax/base/file.h"
#include "parax/base/log.h"

namespace parax {

std::optional<MetricPoint> ParseMetricLine(const std::string& line) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_unsigned()) {
    return std::nullopt;
  }
  MetricPoint point;
  for (const auto& [key, value] : json.items()) {
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    if (key == "step") {
      point.step = value.get<uint64_t>();
    } else if (key == "epoch") {
      point.epoch = number;
    } else if (key == "loss") {
      point.loss = number;
    } else if (key == "lr") {
      point.lr = number;
    } else {
      point.extra[key] = number;
    }
  }
  return point;
}

std::string ToJsonLine(const MetricPoint& point) {
  nlohmann::ordered_json json = {
      {"step", point.step}, {"epoch", point.epoch}, {"loss", point.loss}, {"lr", point.lr}};
  for (const auto& [name, value] : point.extra) json[name] = value;
  return json.dump();
}

MetricsLog::MetricsLog(const std::filesystem::path& file, uint64_t resume_step,
                       const std::filesystem::path& earlier)
    : path_(file) {
  std::string kept;
  const std::filesystem::path& source = std::filesystem::exists(file) ? file : earlier;
  if (resume_step > 0 && std::filesystem::exists(source)) {
    std::istringstream in(ReadFile(source));
    int damaged = 0;
    for (std::string line; std::getline(in, line) && !in.eof();) {
      const auto point = ParseMetricLine(line);
      if (point && point->step <= resume_step) kept += line + "\n";
      if (!point) ++damaged;
    }
    if (damaged > 0) Warn("{}: {} lines are no log points and go", source.string(), damaged);
  }
  WriteFileAtomically(file, kept);
  file_ = open(file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file_ < 0) Fail("cannot open {}: {}", file.string(), std::strerror(errno));
}

MetricsLog::~MetricsLog() { close(file_); }

void MetricsLog::Append(const MetricPoint& point) {
  waiting_ += ToJsonLine(point) + "\n";
  // One write: a kill leaves whole lines or a cut one, which the next run's resume removes.
  const ssize_t written = write(file_, waiting_.data(), waiting_.size());
  if (written == static_cast<ssize_t>(waiting_.size())) {
    waiting_.clear();
    warned_ = false;
    return;
  }
  // A full disk cuts a line without an error: takes the piece back and keeps all for the next time.
  const int cause = written < 0 ? errno : ENOSPC;
  const off_t end = lseek(file_, 0, SEEK_END);
  if (written > 0 && ftruncate(file_, end - written) != 0) {
    waiting_.erase(0, static_cast<size_t>(written));
  }
  if (warned_) return;
  warned_ = true;
  Warn("cannot write {}: {}; training goes on, the next step will try again", path_.string(),
       std::strerror(cause));
}

std::vector<MetricPoint> ReadMetrics(const std::filesystem::path& file) {
  std::vector<MetricPoint> points;
  std::istringstream in(ReadFile(file));
  for (std::string line; std::getline(in, line) && !in.eof();) {
    if (const auto point = ParseMetricLine(line)) points.push_back(*point);
  }
  return points;
}

}  // namespace parax
