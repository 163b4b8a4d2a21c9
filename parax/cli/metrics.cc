#include "parax/cli/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "parax/base/error.h"
#include "parax/base/file.h"
#include "parax/base/log.h"

namespace parax {
namespace {

std::optional<MetricPoint> ParseLine(const std::string& line) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step")) return std::nullopt;
  MetricPoint point;
  for (const auto& [key, value] : json.items()) {
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    if (key == "step") {
      point.step = value.is_number_unsigned() ? value.get<uint64_t>() : 0;
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

}  // namespace

MetricsLog::MetricsLog(const std::filesystem::path& file, uint64_t resume_step) : path_(file) {
  std::string kept;
  if (resume_step > 0 && std::filesystem::exists(file)) {
    std::istringstream in(ReadFile(file));
    for (std::string line; std::getline(in, line) && !in.eof();) {
      const auto point = ParseLine(line);
      if (point && point->step <= resume_step) kept += line + "\n";
    }
  }
  WriteFileAtomically(file, kept);
  file_ = open(file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file_ < 0) Fail("cannot open {}: {}", file.string(), std::strerror(errno));
}

MetricsLog::~MetricsLog() { close(file_); }

void MetricsLog::Append(const MetricPoint& point) {
  nlohmann::ordered_json json = {
      {"step", point.step}, {"epoch", point.epoch}, {"loss", point.loss}, {"lr", point.lr}};
  for (const auto& [name, value] : point.extra) json[name] = value;
  const std::string line = json.dump() + "\n";
  // One write: a kill leaves a whole line or a cut one, which the next run's resume removes.
  if (write(file_, line.data(), line.size()) == static_cast<ssize_t>(line.size()) || warned_)
    return;
  warned_ = true;
  Warn("cannot write {}: {}; training goes on", path_.string(), std::strerror(errno));
}

std::vector<MetricPoint> ReadMetrics(const std::filesystem::path& file) {
  std::vector<MetricPoint> points;
  std::istringstream in(ReadFile(file));
  for (std::string line; std::getline(in, line) && !in.eof();) {
    if (const auto point = ParseLine(line)) points.push_back(*point);
  }
  return points;
}

}  // namespace parax
