#include "parax/cli/metrics.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "parax/base/file.h"
#include "tests/engine/test_files.h"

namespace parax {
namespace {

using testing::ErrorOf;
using testing::TemporaryFolder;

MetricPoint Point(uint64_t step) {
  const auto s = static_cast<double>(step);
  return {step, s / 10, 1 / s, 0.1, {{"images_per_s", 100 + s}}};
}

void ExpectSteps(const std::vector<MetricPoint>& points, uint64_t first, uint64_t last) {
  ASSERT_EQ(points.size(), last - first + 1);
  for (const MetricPoint& p : points) {
    const MetricPoint expected = Point(first + static_cast<uint64_t>(&p - points.data()));
    EXPECT_EQ(p.step, expected.step);
    EXPECT_EQ(p.epoch, expected.epoch);
    EXPECT_EQ(p.loss, expected.loss);
    EXPECT_EQ(p.lr, expected.lr);
    EXPECT_EQ(p.extra, expected.extra);
  }
}

std::string Write(const std::filesystem::path& file, uint64_t last) {
  MetricsLog log(file, 0);
  for (uint64_t step = 1; step <= last; ++step) log.Append(Point(step));
  return ReadFile(file);
}

TEST(MetricsTest, WritesOneJsonLineAPoint) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  MetricsLog log(file, 0);
  log.Append({3, 0.5, 1.25, 0.1, {{"accuracy", 0.75}}});
  // In the file at once, in an order that people read.
  EXPECT_EQ(ReadFile(file), R"({"step":3,"epoch":0.5,"loss":1.25,"lr":0.1,"accuracy":0.75})"
                            "\n");
}

TEST(MetricsTest, KeepsEveryBitOfEachNumber) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  MetricPoint point{uint64_t{1} << 60, 1.0 / 3, std::nextafter(2.0, 3.0), 1e-300, {}};
  MetricsLog(file, 0).Append(point);
  const auto points = ReadMetrics(file);
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0].step, point.step);
  EXPECT_EQ(points[0].epoch, point.epoch);
  EXPECT_EQ(points[0].loss, point.loss);
  EXPECT_EQ(points[0].lr, point.lr);
}

TEST(MetricsTest, KeepsALossThatIsNoNumber) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  {
    MetricsLog log(file, 0);
    log.Append({1, 0, std::nan(""), 0.1, {}});
    log.Append({2, 0, std::numeric_limits<double>::infinity(), 0.1, {}});
  }
  const auto points = ReadMetrics(file);
  ASSERT_EQ(points.size(), 2u);
  EXPECT_TRUE(std::isnan(points[0].loss));
  EXPECT_FALSE(std::isfinite(points[1].loss));
  EXPECT_EQ(points[1].step, 2u);
}

TEST(MetricsTest, ANewRunStartsANewFile) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  Write(file, 5);
  MetricsLog log(file, 0);
  EXPECT_EQ(ReadFile(file), "");
}

TEST(MetricsTest, ResumeCutsWhatIsBeyondItsStep) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  Write(file, 9);
  MetricsLog log(file, 6);
  ExpectSteps(ReadMetrics(file), 1, 6);
  for (uint64_t step = 7; step <= 12; ++step) log.Append(Point(step));
  ExpectSteps(ReadMetrics(file), 1, 12);
}

TEST(MetricsTest, ResumeWithoutAFileStartsOne) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  MetricsLog log(file, 6);
  log.Append(Point(7));
  ExpectSteps(ReadMetrics(file), 7, 7);
}

// A kill at any byte of the lines behind the checkpoint of step 6.
TEST(MetricsTest, ResumesFromAFileCutAtAnyByte) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  const size_t begin = Write(file, 6).size();
  const std::string whole = Write(file, 8);
  for (size_t size = begin; size <= whole.size(); ++size) {
    WriteFileAtomically(file, whole.substr(0, size));
    {
      MetricsLog log(file, 6);
      for (uint64_t step = 7; step <= 8; ++step) log.Append(Point(step));
    }
    ASSERT_EQ(ReadFile(file), whole) << "cut at byte " << size;
  }
}

// Readers (the report, `tail -f` scripts) see whole lines only.
TEST(MetricsTest, ReadsTheWholeLinesOfAFileCutAtAnyByte) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  const std::string whole = Write(file, 3);
  for (size_t size = 0; size <= whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    WriteFileAtomically(file, cut);
    const auto points = ReadMetrics(file);
    ASSERT_EQ(points.size(), static_cast<size_t>(std::count(cut.begin(), cut.end(), '\n')));
  }
}

TEST(MetricsTest, SkipsLinesThatAreNoLogPoints) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  WriteFileAtomically(file,
                      "\n[1]\n{}\n{\"step\":-1}\n{\"step\":\"7\"}\nnull\n{\"step\":1.5}\n\xff\n"
                      "{\"step\":4,\"epoch\":1,\"note\":\"text\"}\n");
  const auto points = ReadMetrics(file);
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0].step, 4u);
  EXPECT_TRUE(std::isnan(points[0].extra.at("note")));
}

TEST(MetricsTest, NamesAFileThatCannotBeOpened) {
  const auto nowhere = std::filesystem::path("/nonexistent/metrics.jsonl");
  EXPECT_NE(ErrorOf([&] { MetricsLog log(nowhere, 0); }).find(nowhere.string()), std::string::npos);
  EXPECT_NE(ErrorOf([&] { ReadMetrics(nowhere); }).find(nowhere.string()), std::string::npos);
}

// The limit on a file's size stands for a full disk: the system cuts the line in the same way.
TEST(MetricsTest, AFullDiskCostsOneWarningAndNoLine) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  MetricsLog log(file, 0);
  // Enough that the warnings' own file stays below the limit.
  for (uint64_t step = 1; step <= 30; ++step) log.Append(Point(step));
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit full{std::filesystem::file_size(file) + 10, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &full);
  ::testing::internal::CaptureStderr();
  log.Append(Point(31));
  log.Append(Point(32));
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, old_handler);
  ExpectSteps(ReadMetrics(file), 1, 30);
  EXPECT_EQ(std::count(warnings.begin(), warnings.end(), '\n'), 1) << warnings;
  EXPECT_NE(warnings.find(file.string()), std::string::npos) << warnings;
  log.Append(Point(33));  // there is room again: also for the lines before
  ExpectSteps(ReadMetrics(file), 1, 33);
}

}  // namespace
}  // namespace parax
