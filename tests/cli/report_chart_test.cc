#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <regex>

#include "parax/cli/report.h"
#include "tests/cli/html.h"

namespace parax {
namespace {

using testing::Count;
using testing::ExpectBalanced;

std::string ChartOf(const std::vector<double>& values) {
  ReportSeries series{"loss", {}};
  for (size_t i = 0; i < values.size(); ++i) series.points.emplace_back(i + 1, values[i]);
  return SvgChart("Loss", {series}, false, false);
}

TEST(ReportChartTest, AChartOfAnyNumbersEndsAndStaysInItsFrame) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(ChartOf({}), "");
  EXPECT_EQ(ChartOf({std::nan(""), inf}), "");
  for (const std::vector<double>& values : {std::vector<double>{0},
                                            {2.5},
                                            {1e30},
                                            {1e20, std::nextafter(1e20, 1e21)},
                                            {-3, -3},
                                            {1e-30, 2e-30},
                                            {3e38, 0},
                                            {1, std::nan(""), inf, 2},
                                            {0.1, 0.1, 0.1}}) {
    const std::string svg = ChartOf(values);
    ExpectBalanced(svg);
    EXPECT_LE(Count(svg, "class=grid"), 11u);
    EXPECT_GE(Count(svg, "class=grid"), 1u) << svg;
    static const std::regex kPoint("[ML]([-0-9.a-z]+),([-0-9.a-z]+)");
    size_t points = 0;
    for (std::sregex_iterator it(svg.begin(), svg.end(), kPoint), end; it != end; ++it, ++points) {
      const double x = std::stod((*it)[1]), y = std::stod((*it)[2]);
      EXPECT_TRUE(x >= 56 && x <= 540) << svg;
      EXPECT_TRUE(y >= 20 && y <= 240) << svg;
    }
    EXPECT_EQ(points, static_cast<size_t>(std::count_if(values.begin(), values.end(),
                                                        [](double v) { return std::isfinite(v); })))
        << svg;
  }
}

TEST(ReportChartTest, AnOutlierDoesNotPressTheCurveFlat) {
  ReportSeries series{"loss", {{0, 1000.0}}};
  for (int i = 1; i < 100; ++i) series.points.emplace_back(i, 1.0 + 0.01 * i);
  const auto lowest_to_highest = [&](bool training) {
    const std::string svg = SvgChart("Loss", {series}, training, false);
    static const std::regex kPoint("[ML][-0-9.]+,([-0-9.]+)");
    std::vector<double> heights;
    for (std::sregex_iterator it(svg.begin(), svg.end(), kPoint), end; it != end; ++it) {
      heights.push_back(std::stod((*it)[1]));
    }
    EXPECT_GE(heights.at(0), 20) << "stays in the frame";
    return heights.at(1) - heights.at(99);
  };
  EXPECT_GT(lowest_to_highest(true), 80);
  EXPECT_LT(lowest_to_highest(false), 1) << "measured facts are drawn as they are";
}

TEST(ReportChartTest, AChartHasAGapWhereThereIsNoNumberAndADotForALonePoint) {
  const std::string svg = ChartOf({1, 2, std::nan(""), 3});
  const size_t path = svg.find(" d=\"");
  const std::string d = svg.substr(path, svg.find('"', path + 4) - path);
  EXPECT_EQ(Count(d, "M"), 2u) << d;
  EXPECT_EQ(Count(d, "L"), 1u) << d;
  EXPECT_EQ(Count(d, "h0"), 2u) << d;
}

TEST(ReportChartTest, AChartTellsItsSeriesApartAndLeavesOutEmptyOnes) {
  ReportSeries training{"training", {}}, validation{"validation", {}};
  for (int i = 0; i < 30; ++i) training.points.emplace_back(i, i % 3 == 0 ? std::nan("") : i % 7);
  std::string svg = SvgChart("Loss", {training, validation}, true, false);
  EXPECT_EQ(Count(svg, ">training<"), 1u);
  EXPECT_EQ(svg.find(">validation<"), std::string::npos);
  EXPECT_EQ(Count(svg, "<path "), 2u) << "the series and its running mean";
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  validation.points = {{5, 1}, {10, 2}};
  svg = SvgChart("Loss", {training, validation}, true, false);
  EXPECT_EQ(Count(svg, ">validation<"), 1u);
  EXPECT_EQ(Count(svg, "\"line c1\""), 1u);
}

TEST(ReportChartTest, AxesHaveRoundNumbers) {
  ReportSeries series{"", {{0, 0}, {200000, 1}}};
  const std::string svg = SvgChart("Accuracy", {series}, false, true);
  for (const char* label :
       {">0%<", ">20%<", ">40%<", ">60%<", ">80%<", ">100%<", ">0<", ">50000<", ">200000<"}) {
    EXPECT_EQ(Count(svg, label), 1u) << label << svg;
  }
}

}  // namespace
}  // namespace parax
