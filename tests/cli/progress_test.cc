#include "parax/cli/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace parax {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A screen (or pipe, with no columns) and a clock that stands still until a test moves it.
struct Screen {
  explicit Screen(int columns_of) : columns(columns_of) {}
  int columns;
  std::string text;
  Progress::Time time{};

  Progress::Sink sink() {
    return {[this](const std::string& more) { text += more; }, [this] { return time; },
            [this] { return columns; }};
  }
  // What a terminal shows in the end, a string a line.
  std::vector<std::string> Lines() const {
    std::vector<std::string> lines(1);
    for (size_t i = 0; i < text.size(); ++i) {
      if (text.compare(i, 4, "\r\033[K") == 0) {
        lines.back().clear();
        i += 3;
      } else if (text[i] == '\n') {
        lines.emplace_back();
      } else {
        lines.back() += text[i];
      }
    }
    return lines;
  }
  std::string Last() const { return Lines().back(); }
};

TEST(ProgressTest, APipeGetsPlainLinesLessAndLessOften) {
  Screen pipe(0);
  Progress progress(1000, 0, 100, false, pipe.sink());
  std::vector<int> at;
  for (int i = 1; i <= 400; ++i) {
    pipe.time += seconds(1);
    const size_t before = pipe.text.size();
    progress.Step(static_cast<uint64_t>(i), 2.0, 0.25, 32);
    if (pipe.text.size() > before) at.push_back(i);
  }
  EXPECT_EQ(at, (std::vector<int>{2, 6, 14, 30, 62, 122, 182, 242, 302, 362}));
  EXPECT_EQ(pipe.text.find('\r'), std::string::npos);
  EXPECT_EQ(pipe.text.find('\033'), std::string::npos);
  EXPECT_EQ(pipe.Lines()[0],
            "epoch 0.02  step 2/1000  loss 2.0000  accuracy 25.0 %  32.0 images/s  "
            "16 min 38 s left");
}

TEST(ProgressTest, APipeIsToldOfTheLastStepOnce) {
  Screen pipe(0);
  Progress progress(3, 0, 3, false, pipe.sink());
  for (uint64_t step = 1; step <= 3; ++step) {
    pipe.time += seconds(1);
    progress.Step(step, 1, 0.5, 8);
  }
  progress.Clear();
  progress.Finish();
  auto lines = pipe.Lines();
  ASSERT_EQ(lines.size(), 3u) << pipe.text;
  EXPECT_NE(lines[1].find("step 3/3"), std::string::npos);
  EXPECT_NE(lines[1].find("0 s left"), std::string::npos);
  EXPECT_EQ(lines[2], "");

  Screen other(0);
  Progress slow(3, 0, 3, false, other.sink());
  other.time += seconds(2);
  slow.Step(3, 1, 0.5, 8);  // shown as its time has come
  slow.Finish();
  EXPECT_EQ(other.Lines().size(), 2u) << other.text;
}

TEST(ProgressTest, ATerminalShowsOneLineThatFits) {
  for (int columns = 1; columns <= 200; ++columns) {
    Screen screen(columns);
    Progress progress(12345, 0, 100, false, screen.sink());
    for (uint64_t step = 1; step <= 1234; ++step) {
      screen.time += milliseconds(500);
      progress.Step(step, 12.5, 0.5, 256);
    }
    ASSERT_EQ(screen.Lines().size(), 1u);
    ASSERT_LT(screen.Last().size(), static_cast<size_t>(columns));
    if (columns >= 50) {
      EXPECT_NE(screen.Last().find("1 h 32 min left"), std::string::npos)
          << columns << ": " << screen.Last();
    }
    if (columns >= 80) {
      EXPECT_NE(screen.Last().find("["), std::string::npos) << columns << ": " << screen.Last();
      EXPECT_NE(screen.Last().find("512"), std::string::npos) << columns << ": " << screen.Last();
    }
  }
}

TEST(ProgressTest, TheBarIsAsFullAsTheRun) {
  for (const uint64_t step : {0u, 1u, 500u, 999u, 1000u, 1001u}) {
    Screen screen(140);
    Progress progress(1000, 0, 100, false, screen.sink());
    screen.time += seconds(1);
    progress.Step(step, 1, 0.5, 8);
    const std::string line = screen.Last();
    EXPECT_EQ(line.find(']'), 31u) << line;
    EXPECT_EQ(std::count(line.begin(), line.begin() + 31, '#'),
              static_cast<int64_t>(std::min<uint64_t>(step, 1000) * 30 / 1000))
        << line;
  }
}

TEST(ProgressTest, TheBarIsDrawnTenTimesASecondAtMost) {
  Screen screen(120);
  Progress progress(10000, 0, 100, false, screen.sink());
  for (uint64_t step = 1; step <= 1000; ++step) {
    screen.time += milliseconds(1);
    progress.Step(step, 1, 0.5, 8);
  }
  const auto drawn = std::count(screen.text.begin(), screen.text.end(), '\r');
  EXPECT_GE(drawn, 9);
  EXPECT_LE(drawn, 11);
}

TEST(ProgressTest, ClearMakesRoomAndTheNextStepDrawsAgain) {
  Screen screen(120);
  Progress progress(100, 0, 10, false, screen.sink());
  progress.Clear();
  EXPECT_EQ(screen.text, "") << "nothing to clear yet";
  progress.Step(1, 1, 0.5, 8);
  progress.Clear();
  EXPECT_EQ(screen.Last(), "");
  screen.text += "a log line\n";
  progress.Step(2, 1, 0.5, 8);  // less than the redraw time later
  const auto lines = screen.Lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], "a log line");
  EXPECT_NE(lines[1].find("step 2/100"), std::string::npos);
}

TEST(ProgressTest, FinishLeavesTheLastStateOnTheScreen) {
  Screen screen(120);
  Progress progress(100, 0, 10, false, screen.sink());
  for (uint64_t step = 1; step <= 7; ++step) progress.Step(step, 1, 0.5, 8);  // in no time
  progress.Clear();
  progress.Finish();
  const auto lines = screen.Lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("step 7/100"), std::string::npos) << lines[0];
  EXPECT_EQ(lines[1], "");
}

TEST(ProgressTest, QuietAndARunWithoutStepsSayNothing) {
  for (const int columns : {0, 120}) {
    Screen screen(columns);
    Progress quiet(100, 0, 10, true, screen.sink());
    for (uint64_t step = 1; step <= 100; ++step) {
      screen.time += seconds(1);
      quiet.Step(step, 1, 0.5, 8);
    }
    quiet.Clear();
    quiet.Finish();
    EXPECT_EQ(screen.text, "");
    EXPECT_DOUBLE_EQ(quiet.ImagesPerSecond(), 8);
    Progress none(100, 100, 10, false, screen.sink());  // resumed at its end
    none.Finish();
    EXPECT_EQ(screen.text, "");
  }
}

TEST(ProgressTest, TheRateLeavesOutTheFirstStepAndForgetsAfterHalfAMinute) {
  Screen pipe(0);
  Progress progress(1000, 0, 100, false, pipe.sink());
  EXPECT_EQ(progress.ImagesPerSecond(), 0);
  pipe.time += seconds(10);  // the first step fills caches
  progress.Step(1, 1, 0.5, 100);
  EXPECT_DOUBLE_EQ(progress.ImagesPerSecond(), 10) << "all there is yet";
  pipe.time += seconds(1);
  progress.Step(2, 1, 0.5, 100);
  EXPECT_DOUBLE_EQ(progress.ImagesPerSecond(), 100);
  for (uint64_t step = 3; step <= 40; ++step) {
    pipe.time += seconds(1);
    progress.Step(step, 1, 0.5, 50);
  }
  EXPECT_DOUBLE_EQ(progress.ImagesPerSecond(), 50);
}

TEST(ProgressTest, AResumedRunCountsItsOwnSteps) {
  Screen pipe(0);
  Progress progress(1000, 900, 100, false, pipe.sink());
  for (uint64_t step = 901; step <= 910; ++step) {
    pipe.time += seconds(2);
    progress.Step(step, 1, 0.5, 50);
  }
  progress.Finish();
  const auto lines = pipe.Lines();
  const std::string& last = lines[lines.size() - 2];
  EXPECT_NE(last.find("epoch 9.10  step 910/1000"), std::string::npos) << last;
  EXPECT_NE(last.find("25.0 images/s  3 min 00 s left"), std::string::npos) << last;
}

TEST(ProgressTest, AveragesTheFirstStepsEvenlyAndPassesABadLoss) {
  Screen pipe(0);
  Progress progress(1000, 0, 100, false, pipe.sink());
  const auto shown = [&](uint64_t step, double loss) {
    pipe.text.clear();
    pipe.time += seconds(100);  // longer than any interval
    progress.Step(step, loss, loss / 10, 8);
    return pipe.Lines()[0];
  };
  EXPECT_NE(shown(1, 9).find("loss 9.0000  accuracy 90.0 %"), std::string::npos);
  EXPECT_NE(shown(2, 3).find("loss 6.0000  accuracy 60.0 %"), std::string::npos);
  EXPECT_NE(shown(3, 3).find("loss 5.0000  accuracy 50.0 %"), std::string::npos);
  EXPECT_NE(shown(4, std::nan("")).find("loss nan"), std::string::npos);
  EXPECT_NE(shown(5, 2).find("loss 2.0000"), std::string::npos);
  for (uint64_t step = 6; step <= 500; ++step) shown(step, 2);
  EXPECT_NE(shown(501, 3).find("loss 2.0200"), std::string::npos);  // 0.98 and 0.02
}

}  // namespace
}  // namespace parax
