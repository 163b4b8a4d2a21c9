#include "parax/cli/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "parax/base/file.h"
#include "tests/cli/html.h"
#include "tests/data/image_writer.h"
#include "tests/engine/test_files.h"

namespace parax {
namespace {

using testing::Count;
using testing::ExpectBalanced;
using testing::TemporaryFolder;

constexpr char kEvil[] = "<script>alert('\"&')</script>";
constexpr char kEscaped[] = "&lt;script&gt;alert(&#39;&quot;&amp;&#39;)&lt;/script&gt;";

// A run with `classes` classes that gets one of ten wrong, mostly into the next class.
ReportContent Example(size_t classes, const std::filesystem::path& folder) {
  static const char* const kNames[] = {"daisy", "dandelion", "roses", "sunflowers", "tulips"};
  ReportContent content;
  content.title = "resnet18 on flowers";
  content.command = "parax train --data flowers --model resnet18 --epochs 20";
  content.toml = "model = \"resnet18\"\nepochs = 20\nbatch = 64\nlr = 0.1\n";
  content.summary = {{"steps", "1000 of 1000"},
                     {"training time", "12 min 30 s"},
                     {"images/s", "84.2"},
                     {"validation accuracy", "90.00 %"},
                     {"best val_accuracy", "0.9120 at step 900"}};
  content.machine = {"2 instances on 2 cores, peak 2.1 of 16 GB", "oneDNN 3.2 (AVX-512)"};
  content.usage = {"parax eval --model runs/flowers --data flowers",
                   "parax predict --model runs/flowers photo.jpg"};
  for (uint64_t step = 1; step <= 1000; ++step) {
    const double t = static_cast<double>(step) / 1000;
    const double noise = std::sin(static_cast<double>(step * step % 1009));
    MetricPoint point{step,
                      20 * t,
                      1.7 * std::exp(-2 * t) + 0.1 * noise,
                      0.05 * (1 + std::cos(std::numbers::pi * t)),
                      {{"accuracy", std::min(1.0, 0.25 + 0.65 * t + 0.06 * noise)},
                       {"images_per_s", 84 + 2 * noise}}};
    if (step % 50 == 0) {
      point.extra["val_loss"] = 1.6 * std::exp(-1.6 * t);
      point.extra["val_accuracy"] = 0.3 + 0.6 * t;
    }
    content.metrics.push_back(point);
  }
  for (size_t c = 0; c < classes; ++c) {
    content.classes.push_back(classes <= 5 ? kNames[c] : "class number " + std::to_string(c));
    for (size_t p = 0; p < classes; ++p) {
      content.confusion.push_back(c == p ? 90 : p == (c + 1) % classes ? 7 + (c % 3) : 0);
    }
  }
  for (int32_t i = 0; i < 12; ++i) {
    const auto path = folder / ("photo_" + std::to_string(i) + ".jpg");
    WriteFileAtomically(path, WriteJpeg(MakePicture(200 + 20 * i, 320 - 20 * i)));
    content.mistakes.push_back({path, i % 2, 1 - i % 2, 0.99f - 0.03f * static_cast<float>(i)});
  }
  return content;
}

std::string Write(const ReportContent& content) {
  const TemporaryFolder folder;
  WriteReport(folder.path() / "report.html", content);
  return ReadFile(folder.path() / "report.html");
}

TEST(ReportTest, HoldsEveryPartAndNeedsNothingElse) {
  const TemporaryFolder folder;
  const ReportContent content = Example(5, folder.path());
  const std::string html = Write(content);
  ExpectBalanced(html);
  for (const auto& [name, value] : content.summary) {
    EXPECT_NE(html.find(value), std::string::npos) << value;
    EXPECT_NE(html.find(name), std::string::npos) << name;
  }
  for (const std::string& part :
       {content.title, content.command, EscapeHtml(content.toml), content.machine[1],
        content.usage[1], std::string("Confusion matrix"), std::string("Worst mistakes"),
        std::string("photo_11.jpg"), std::string("(99 %)"), std::string(">90</td>")}) {
    EXPECT_NE(html.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(Count(html, "<svg "), 4u);
  EXPECT_EQ(Count(html, "data:image/jpeg;base64,"), 12u);
  for (const char* outside : {"http:", "https:", "<script", "<link", "@import", "url("}) {
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  }
}

TEST(ReportTest, EscapesEveryText) {
  const TemporaryFolder folder;
  ReportContent content = Example(2, folder.path());
  content.title = content.command = content.toml = kEvil;
  content.summary = {{kEvil, kEvil}};
  content.machine = content.usage = {kEvil};
  content.classes[0] = kEvil;
  content.mistakes.resize(1);
  content.mistakes[0].path = kEvil;
  for (const size_t classes : {2u, 101u}) {  // the matrix, and the list of pairs
    content.classes.resize(classes, kEvil);
    content.confusion.assign(classes * classes, 1);
    const std::string html = Write(content);
    EXPECT_EQ(html.find("<script"), std::string::npos);
    EXPECT_EQ(html.find("alert('"), std::string::npos);
    // Title twice, command, configuration, summary twice, machine, usage, the mistake's class and
    // whole path; classes besides.
    EXPECT_GE(Count(html, kEscaped), 11u);
    ExpectBalanced(html);
  }
}

TEST(ReportTest, EscapesHtml) {
  EXPECT_EQ(EscapeHtml(kEvil), kEscaped);
  EXPECT_EQ(EscapeHtml("Müller, 50 %"), "Müller, 50 %");
  EXPECT_EQ(EscapeHtml(""), "");
}

TEST(ReportTest, ShowsTheMatrixOfUpToAHundredClasses) {
  const TemporaryFolder folder;
  for (const size_t classes : {2u, 100u}) {
    const ReportContent content = Example(classes, folder.path());
    const std::string html = Write(content);
    ExpectBalanced(html);
    EXPECT_EQ(Count(html, "<td"), classes * (classes + 1));
    EXPECT_EQ(Count(html, ">90</td>"), classes);
    EXPECT_NE(html.find("<td>92.8 %</td>"), std::string::npos);  // 90 of 90 + 7
  }
}

TEST(ReportTest, ShowsTheMostConfusedPairsOfMoreClasses) {
  const TemporaryFolder folder;
  ReportContent content = Example(150, folder.path());
  content.confusion[3 * 150 + 77] = 55;
  const std::string html = Write(content);
  ExpectBalanced(html);
  EXPECT_EQ(html.find("Confusion matrix"), std::string::npos);
  EXPECT_EQ(Count(html, "<tr><td>"), 30u);
  const size_t first = html.find("<tr><td>");
  EXPECT_EQ(html.substr(first, html.find("</tr>", first) - first),
            "<tr><td>class number 3</td><td>class number 77</td><td>55</td>");
}

TEST(ReportTest, ARunThatGotNowhereHasAReport) {
  ReportContent content;
  content.title = "resnet18 on flowers";
  const std::string html = Write(content);
  ExpectBalanced(html);
  for (const char* part : {"<svg", "Curves", "Confusion", "Most confused", "Worst mistakes", "nan"})
    EXPECT_EQ(html.find(part), std::string::npos) << part;
}

TEST(ReportTest, AClassWithoutImagesHasNoShareOfRightOnes) {
  ReportContent content;
  content.classes = {"a", "b"};
  content.confusion = {0, 0, 1, 3};
  const std::string html = Write(content);
  EXPECT_EQ(html.find("nan"), std::string::npos);
  EXPECT_NE(html.find("75.0 %"), std::string::npos);
  EXPECT_EQ(Count(html, "%</td>"), 1u);
}

TEST(ReportTest, GoesWithoutThePictureOfALostFile) {
  const TemporaryFolder folder;
  ReportContent content = Example(2, folder.path());
  std::filesystem::remove(content.mistakes[0].path);
  WriteFileAtomically(content.mistakes[1].path, "not a picture");
  const std::string html = Write(content);
  ExpectBalanced(html);
  EXPECT_EQ(Count(html, "<img "), 10u);
  EXPECT_EQ(Count(html, "<figure "), 12u);
}

TEST(ReportTest, TheThumbnailIsASmallPictureOfTheCentre) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "wide.png";
  Image image;
  image.Resize(400, 200);  // red, with a green square in the middle
  for (int y = 0; y < 200; ++y) {
    for (int x = 0; x < 400; ++x) {
      const bool centre = x >= 100 && x < 300;
      image.row(y)[3 * x] = centre ? 0 : 255;
      image.row(y)[3 * x + 1] = centre ? 255 : 0;
      image.row(y)[3 * x + 2] = 0;
    }
  }
  WriteFileAtomically(path, WritePng(image));
  const std::string uri = ThumbnailUri(path);
  const std::string start = "data:image/jpeg;base64,";
  ASSERT_EQ(uri.substr(0, start.size()), start);
  std::string jpeg;
  uint32_t bits = 0;
  int have = 0;
  ASSERT_EQ((uri.size() - start.size()) % 4, 0u);
  for (const char c : uri.substr(start.size())) {
    if (c == '=') break;
    const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    ASSERT_NE(digits.find(c), std::string::npos);
    bits = bits << 6 | static_cast<uint32_t>(digits.find(c));
    if ((have += 6) >= 8) jpeg += static_cast<char>(bits >> (have -= 8));
  }
  Decoder decoder;
  Image small;
  ASSERT_EQ(decoder.Decode(Bytes(jpeg), {}, small), "");
  ASSERT_EQ(small.width, small.height);
  for (const int at : {4, small.width / 2, small.width - 5}) {
    const uint8_t* p = small.row(small.height / 2) + 3 * at;
    EXPECT_LT(p[0], 30);
    EXPECT_GT(p[1], 225);
  }
}

}  // namespace
}  // namespace parax
