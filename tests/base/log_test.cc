#include "parax/base/log.h"

#include <gtest/gtest.h>

namespace parax {
namespace {

TEST(Log, GoesToStandardErrorOnly) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Info("{} instances", 2);
  Warn("slow {}", "disk");
  const std::string err = testing::internal::GetCapturedStderr();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_NE(err.find("2 instances\n"), std::string::npos) << err;
  EXPECT_NE(err.find("warning: slow disk"), std::string::npos) << err;
}

TEST(Log, WritesOneLineThatNoTerminalObeys) {
  testing::internal::CaptureStderr();
  Warn("{} is no class", "evil\nerror: \x1B[2J");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "warning: evil\\nerror: \\x1b[2J is no class\n");
}

TEST(Log, QuietKeepsWarnings) {
  SetQuiet(true);
  testing::internal::CaptureStderr();
  Info("chatter");
  Warn("{{braces}} in {}", "{text}");
  const std::string err = testing::internal::GetCapturedStderr();
  SetQuiet(false);
  EXPECT_EQ(err.find("chatter"), std::string::npos) << err;
  EXPECT_NE(err.find("warning: {braces} in {text}"), std::string::npos) << err;
}

}  // namespace
}  // namespace parax
