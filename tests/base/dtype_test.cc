#include "parax/base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "parax/base/outcome.h"
#include "parax/base/philox.h"

namespace parax {
namespace {

float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }

TEST(BFloat16, EveryValueSurvivesTheWayThroughFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = FromBits(bits << 16);
    const BFloat16 back(value);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(back)));
    } else {
      EXPECT_EQ(back.bits(), bits);
    }
  }
}

TEST(BFloat16, TiesGoToEven) {
  EXPECT_EQ(BFloat16(FromBits(0x3f808000)).bits(), 0x3f80);  // 1 + half a unit: down to even
  EXPECT_EQ(BFloat16(FromBits(0x3f808001)).bits(), 0x3f81);
  EXPECT_EQ(BFloat16(FromBits(0x3f818000)).bits(), 0x3f82);  // up to even
  EXPECT_EQ(BFloat16(FromBits(0x3f817fff)).bits(), 0x3f81);
  EXPECT_EQ(BFloat16(FromBits(0xbf818000)).bits(), 0xbf82);
}

TEST(BFloat16, RoundsToTheNearest) {
  RandomStream random(1, RandomUse::kTest);
  for (int i = 0; i < 100000; ++i) {
    const float value = FromBits(random.Next() & 0xbfffffffu);  // below 2: no overflow
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const double down = FromBits(bits & 0xffff0000u);
    const double up = FromBits((bits & 0xffff0000u) + 0x10000u);
    const double got = static_cast<float>(BFloat16(value));
    EXPECT_EQ(std::abs(got - value), std::min(std::abs(down - value), std::abs(up - value)));
  }
}

TEST(BFloat16, ExtremeValues) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(static_cast<float>(BFloat16(std::numeric_limits<float>::max())), kInfinity);
  EXPECT_EQ(static_cast<float>(BFloat16(-kInfinity)), -kInfinity);
  // A NaN whose payload lies in the dropped half must not become infinite.
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(FromBits(0x7f800001)))));
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(FromBits(0xffffffff)))));
  EXPECT_EQ(BFloat16(-0.0f).bits(), 0x8000);
}

TEST(DType, SizesAndNames) {
  EXPECT_EQ(SizeOf(DType::kF32), sizeof(float));
  EXPECT_EQ(SizeOf(DType::kBF16), sizeof(BFloat16));
  EXPECT_EQ(SizeOf(DType::kI64), sizeof(int64_t));
  EXPECT_EQ(SizeOf(DType::kI32), sizeof(int32_t));
  EXPECT_EQ(SizeOf(DType::kU8), 1u);
  EXPECT_EQ(Name(DType::kBF16), "bf16");
  EXPECT_EQ(Name(DType::kI64), "int64");
}

TEST(Outcome, Names) {
  EXPECT_EQ(Name(Outcome::kOk), "ok");
  EXPECT_EQ(Name(Outcome::kNotFinite), "not finite");
  EXPECT_EQ(Name(Outcome::kKernelFailed), "kernel failed");
}

}  // namespace
}  // namespace parax
