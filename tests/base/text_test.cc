#include "parax/base/text.h"

#include <gtest/gtest.h>

#include <vector>

namespace parax {
namespace {

TEST(HumanBytes, ThreeFigures) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(999), "999 B");
  EXPECT_EQ(HumanBytes(1000), "1.00 KB");
  EXPECT_EQ(HumanBytes(312e3), "312 KB");
  EXPECT_EQ(HumanBytes(1.5e9), "1.50 GB");
  EXPECT_EQ(HumanBytes(41.04e9), "41.0 GB");
}

TEST(HumanBytes, RoundingMovesOnToTheNextUnit) {
  EXPECT_EQ(HumanBytes(999499), "999 KB");
  EXPECT_EQ(HumanBytes(999999), "1.00 MB");
  EXPECT_EQ(HumanBytes(9.96e6), "10.0 MB");
  EXPECT_EQ(HumanBytes(99.96e6), "100 MB");
  EXPECT_EQ(HumanBytes(2e18), "2000 PB");
}

TEST(HumanTime, Units) {
  EXPECT_EQ(HumanTime(12.4), "12 s");
  EXPECT_EQ(HumanTime(59.6), "1 min 00 s");
  EXPECT_EQ(HumanTime(200), "3 min 20 s");
  EXPECT_EQ(HumanTime(3600 * 2 + 60 * 5 + 7), "2 h 05 min");
  EXPECT_EQ(HumanTime(-1), "0 s");
}

TEST(Nearest, FindsTheTypo) {
  const std::vector<std::string> flags = {"learning-rate", "lr", "label-smoothing", "batch-size"};
  EXPECT_EQ(Nearest("leraning-rate", flags), "learning-rate");
  EXPECT_EQ(Nearest("label-smooth", flags), "label-smoothing");
  EXPECT_EQ(Nearest("lr", flags), "lr");
  EXPECT_EQ(Nearest("batchsize", flags), "batch-size");
}

TEST(IsUtf8, AcceptsTextAndRefusesOtherBytes) {
  for (const char* right : {"", "plain", "bl\xC3\xA4u", "\xE2\x82\xAC", "\xF0\x9F\x8C\xB7"}) {
    EXPECT_TRUE(IsUtf8(right)) << right;
  }
  for (const char* wrong : {"\xFF", "a\xC3", "\xC0\xAF", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\x80",
                            "\xE0\x80\x80", "\xF4\x90\x80\x80"}) {
    EXPECT_FALSE(IsUtf8(wrong));
  }
}

TEST(Printable, ShowsWhatATerminalWouldObey) {
  for (const char* text :
       {"", "plain \\n", "red caf\xC3\xA9", "\xE2\x82\xAC", "\xC2\xA0", "\xC3\x80"}) {
    EXPECT_EQ(Printable(text), text);
  }
  EXPECT_EQ(Printable("a\nb\tc\r"), "a\\nb\\tc\\x0d");
  EXPECT_EQ(Printable("\x1B[31mred\x7F"), "\\x1b[31mred\\x7f");
  EXPECT_EQ(Printable("\xC2\x9B\x31mred"), "\\xc2\\x9b1mred");  // the one-character escape
  EXPECT_EQ(Printable("caf\xE9\xC3"), "caf\\xe9\\xc3");
  EXPECT_EQ(Printable(std::string_view("\0", 1)), "\\x00");
}

TEST(Nearest, FarWordsHaveNone) {
  const std::vector<std::string> flags = {"learning-rate", "batch-size"};
  EXPECT_EQ(Nearest("momentum", flags), "");
  EXPECT_EQ(Nearest("anything", {}), "");
}

}  // namespace
}  // namespace parax
