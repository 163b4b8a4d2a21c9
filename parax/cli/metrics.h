#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace parax {

// One log point of training.
struct MetricPoint {
  uint64_t step = 0;
  double epoch = 0, loss = 0, lr = 0;
  std::map<std::string, double> extra;  // accuracy, images_per_s, gradient_norm, val_accuracy ...
};

std::string ToJsonLine(const MetricPoint& point);                     // no newline
std::optional<MetricPoint> ParseMetricLine(const std::string& line);  // nothing: not one

// metrics.jsonl of a run folder: a JSON line a log point, each step once.
class MetricsLog {
 public:
  // `resume_step` > 0: keeps the lines up to that step and cuts off what a run that was killed
  // wrote beyond it, a half line included; without such a file, those of `earlier`, the log that
  // the run has had elsewhere. 0: starts a new file. Throws Error.
  MetricsLog(const std::filesystem::path& file, uint64_t resume_step,
             const std::filesystem::path& earlier = {});
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  // In the file when it returns (not synced: a checkpoint that needs it is). While the disk is
  // full, warns once and keeps the lines for the next call: training is worth more than its log.
  void Append(const MetricPoint& point);

 private:
  std::filesystem::path path_;
  int file_ = -1;
  std::string waiting_;  // lines not written yet
  bool warned_ = false;
};

// All whole lines. Throws Error when there is no such file.
std::vector<MetricPoint> ReadMetrics(const std::filesystem::path& file);

}  // namespace parax
