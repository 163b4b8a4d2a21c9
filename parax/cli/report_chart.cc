#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "parax/cli/report.h"

namespace parax {
namespace {

constexpr double kWidth = 560, kHeight = 260;
constexpr double kLeft = 56, kRight = 24, kTop = 30, kBottom = 34;
constexpr size_t kMostPoints = 600;  // drawn a series
constexpr double kSmoothing = 0.95;

struct Range {
  double low = INFINITY, high = -INFINITY;
  void Take(double v) {
    if (!std::isfinite(v)) return;
    low = std::min(low, v);
    high = std::max(high, v);
  }
};

// Outliers (a first step's loss, a spike) would press the rest of a curve flat: where the highest
// value lies more than three times as far above the lowest as nearly all others, the range ends
// closer to these.
void CutOutliers(Range& range, std::vector<double> values) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  if (values.size() <= 20) return;
  const auto nearly_all = values.begin() + static_cast<ptrdiff_t>(values.size() * 98 / 100);
  std::nth_element(values.begin(), nearly_all, values.end());
  const double height = *nearly_all - range.low;
  if (height > 0 && range.high - range.low > 3 * height) range.high = range.low + 1.5 * height;
}

// A round step (1, 2 or 5 times a power of ten) that cuts the range into three to six.
double RoundStep(double span) {
  const double rough = std::max(span, 1e-300) / 6;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (rough <= factor * power) return factor * power;
  }
  return 10 * power;
}

// The multiples of `step` in the range. Counted, not summed up: where the step is less than the
// numbers' precision a sum would stand still.
std::vector<double> Ticks(Range range, double step) {
  std::vector<double> ticks;
  const double first = std::ceil(range.low / step);
  for (int i = 0; i <= 10 && (first + i) * step <= range.high; ++i) {
    ticks.push_back((first + i) * step);
  }
  return ticks;
}

std::vector<std::pair<double, double>> Thinned(
    const std::vector<std::pair<double, double>>& points) {
  const size_t stride = points.size() / kMostPoints + 1;
  std::vector<std::pair<double, double>> thin;
  for (size_t i = 0; i < points.size(); i += stride) thin.push_back(points[i]);
  if (!points.empty() && (points.size() - 1) % stride != 0) thin.push_back(points.back());
  return thin;
}

std::vector<std::pair<double, double>> RunningMean(std::vector<std::pair<double, double>> points) {
  double mean = 0, weight = 0;
  for (auto& [step, value] : points) {
    if (!std::isfinite(value)) continue;  // the line has a gap there, and goes on
    mean = kSmoothing * mean + (1 - kSmoothing) * value;
    weight = kSmoothing * weight + (1 - kSmoothing);
    value = mean / weight;
  }
  return points;
}

class Chart {
 public:
  Chart(Range x, Range y) : x_(x), y_(y) {
    const bool flat = y_.high == y_.low;
    const double margin = !flat         ? 0.05 * (y_.high - y_.low)
                          : y_.low == 0 ? 1
                                        : 0.5 * std::abs(y_.low);
    y_.low -= margin;
    y_.high += margin;
    if (x_.high == x_.low) x_.high = x_.low + 1;
  }
  double X(double v) const {
    return kLeft + (v - x_.low) / (x_.high - x_.low) * (kWidth - kLeft - kRight);
  }
  double Y(double v) const {
    return kHeight - kBottom -
           (std::min(v, y_.high) - y_.low) / (y_.high - y_.low) * (kHeight - kTop - kBottom);
  }
  std::string Axes(bool percent) const {
    std::string svg;
    const double dy = RoundStep(y_.high - y_.low);
    for (const double v : Ticks(y_, dy)) {
      svg += fmt::format(
          "<line class=grid x1={:.1f} x2={:.1f} y1={:.1f} y2={:.1f} /><text class=tick x={:.1f} "
          "y={:.1f} text-anchor=end>{}</text>\n",
          kLeft, kWidth - kRight, Y(v), Y(v), kLeft - 6, Y(v) + 4,
          percent ? fmt::format("{:g}%", std::round(1000 * v) / 10)
                  : fmt::format("{:g}", std::abs(v) < dy / 2 ? 0.0 : v));
    }
    const double dx = std::max(1.0, RoundStep(x_.high - x_.low));  // whole steps
    for (const double v : Ticks(x_, dx)) {
      svg += fmt::format("<text class=tick x={:.1f} y={:.1f} text-anchor=middle>{:.0f}</text>\n",
                         X(v), kHeight - kBottom + 16, v);
    }
    return svg + fmt::format("<text class=tick x={:.1f} y={:.1f} text-anchor=end>step</text>\n",
                             kWidth - kRight, kHeight - 4);
  }
  std::string Line(const std::vector<std::pair<double, double>>& points, size_t colour,
                   bool faint) const {
    std::string path;
    bool drawn = false;  // is the point before
    for (const auto& [step, value] : points) {
      const bool gap = !drawn;
      drawn = std::isfinite(value);
      if (!drawn) continue;
      // "h0": with round caps a point that stands alone is a dot, not nothing.
      path += fmt::format("{}{:.1f},{:.1f}{}", gap ? "M" : "L", X(step), Y(value), gap ? "h0" : "");
    }
    return fmt::format("<path class=\"line c{}{}\" d=\"{}\" />\n", colour, faint ? " faint" : "",
                       path);
  }

 private:
  Range x_, y_;
};

}  // namespace

std::string SvgChart(const std::string& title, const std::vector<ReportSeries>& series,
                     bool smooth_first, bool percent) {
  Range x, y;
  std::vector<double> values;
  for (const ReportSeries& s : series) {
    for (const auto& [step, value] : s.points) {
      x.Take(step);
      y.Take(value);
      values.push_back(value);
    }
  }
  if (y.high < y.low) return "";
  if (smooth_first) CutOutliers(y, std::move(values));
  const Chart chart(x, y);
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {} {}\" role=img aria-label=\"{}\">\n<text class=title x={} "
      "y=16>{}</text>\n",
      kWidth, kHeight, EscapeHtml(title), kLeft, EscapeHtml(title));
  svg += chart.Axes(percent);
  double legend = kWidth - kRight;
  for (size_t i = 0; i < series.size(); ++i) {
    if (series[i].points.empty()) continue;
    const bool smooth = smooth_first && i == 0 && series[i].points.size() > 20;
    svg += chart.Line(Thinned(series[i].points), i, smooth);
    if (smooth) svg += chart.Line(Thinned(RunningMean(series[i].points)), i, false);
    if (series.size() < 2) continue;
    svg += fmt::format("<text class=\"legend t{}\" x={:.1f} y=16 text-anchor=end>{}</text>\n", i,
                       legend, EscapeHtml(series[i].name));
    legend -= 9 + 7.2 * static_cast<double>(series[i].name.size());
  }
  return svg + "</svg>\n";
}

}  // namespace parax
