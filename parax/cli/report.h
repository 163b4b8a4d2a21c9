#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "parax/cli/metrics.h"

namespace parax {

// A validation image the network got wrong.
struct ReportMistake {
  std::string path;
  int32_t label = 0, predicted = 0;  // indices of classes
  float confidence = 0;              // probability of the predicted class
};

struct ReportContent {
  std::string title, command, toml;
  std::vector<std::pair<std::string, std::string>> summary;  // name, value
  std::vector<std::string> machine, usage;                   // a line each
  std::vector<MetricPoint> metrics;
  std::vector<std::string> classes;
  uint64_t evaluated_step = 0;     // whose weights made the confusion matrix and the mistakes
  std::vector<int64_t> confusion;  // counts of (true, predicted), row-major; empty: none
  std::vector<ReportMistake> mistakes;
};

// One HTML file that needs nothing else (works offline): summary, curves, confusion matrix, worst
// mistakes as thumbnails, command and configuration. Written whole or not at all. Throws Error.
void WriteReport(const std::filesystem::path& file, const ReportContent& content);

// Line chart as inline SVG: the series' values over steps, the first drawn thin behind its running
// mean when `smooth`.
struct ReportSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // step, value
};
std::string SvgChart(const std::string& title, const std::vector<ReportSeries>& series,
                     bool smooth_first, bool percent);

std::string EscapeHtml(const std::string& text);
// <img> source of a small square JPEG of the file's centre; "" when it can't be read.
std::string ThumbnailUri(const std::string& path);

}  // namespace parax
