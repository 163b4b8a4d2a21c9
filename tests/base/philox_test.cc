#include "parax/base/philox.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace parax {
namespace {

using Counter = std::array<uint32_t, 4>;

// Known answers from Random123's kat_vectors file (philox 4x32, 10 rounds).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

std::vector<uint32_t> Draw(RandomStream stream, int n = 16) {
  std::vector<uint32_t> numbers;
  for (int i = 0; i < n; ++i) numbers.push_back(stream.Next());
  return numbers;
}

TEST(RandomStream, SameCoordinatesSameNumbers) {
  EXPECT_EQ(Draw({7, RandomUse::kAugment, 3, 99}), Draw({7, RandomUse::kAugment, 3, 99}));
}

TEST(RandomStream, EveryCoordinateMatters) {
  constexpr uint64_t kHigh = uint64_t{1} << 40;  // the upper halves count too
  std::set<std::vector<uint32_t>> streams;
  size_t made = 0;
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, kHigh}) {
    for (RandomUse use : {RandomUse::kInit, RandomUse::kDropout}) {
      for (uint64_t a : {uint64_t{0}, uint64_t{1}, kHigh}) {
        for (uint64_t b : {uint64_t{0}, uint64_t{1}, kHigh}) {
          streams.insert(Draw({seed, use, a, b}));
          ++made;
        }
      }
    }
  }
  EXPECT_EQ(streams.size(), made);
}

TEST(RandomStream, UniformStaysInRangeAndIsFlat) {
  RandomStream stream(5, RandomUse::kTest);
  std::array<int, 10> bins{};
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    const double u = stream.Uniform();
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++bins[static_cast<size_t>(u * 10)];
  }
  double chi_squared = 0;
  for (int n : bins) chi_squared += (n - kDraws / 10.0) * (n - kDraws / 10.0) / (kDraws / 10.0);
  EXPECT_LT(chi_squared, 27.9);  // 0.1 % point with 9 degrees of freedom
  const double v = stream.Uniform(-3.0, -2.0);
  EXPECT_GE(v, -3.0);
  EXPECT_LT(v, -2.0);
}

TEST(RandomStream, BelowIsUniformAlsoWhereModuloWouldBeBiased) {
  RandomStream stream(6, RandomUse::kTest);
  constexpr uint64_t kN = 3 * (uint64_t{1} << 62);  // draw % kN would hit the first third twice
  int first_third = 0;
  for (int i = 0; i < 30000; ++i) {
    const uint64_t draw = stream.Below(kN);
    ASSERT_LT(draw, kN);
    if (draw < kN / 3) ++first_third;
  }
  EXPECT_NEAR(first_third, 10000, 350);  // 4 standard deviations; biased: 15000
  std::set<uint64_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(stream.Below(5));
  EXPECT_EQ(seen, (std::set<uint64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(stream.Below(1), 0u);
}

TEST(RandomStream, NormalHasTheRightMoments) {
  RandomStream stream(8, RandomUse::kTest);
  constexpr int kDraws = 200000;
  double sum = 0, squares = 0, fourth = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = stream.Normal();
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  EXPECT_NEAR(sum / kDraws, 0.0, 0.01);
  EXPECT_NEAR(squares / kDraws, 1.0, 0.015);
  EXPECT_NEAR(fourth / kDraws, 3.0, 0.1);
}

}  // namespace
}  // namespace parax
