#include "parax/gradserver/index_map.h"

#include <gtest/gtest.h>

#include <vector>

#include "parax/base/error.h"
#include "parax/gradserver/forms_internal.h"

namespace parax {
namespace {

// Every element must land where `position` says, whatever chunks it is written in.
void ExpectWrites(const std::vector<uint32_t>& position, uint64_t copy) {
  const IndexMap map = CompressIndexMap(position, copy);
  CheckMap(map, position.size());
  std::vector<float> values(position.size()), expected(copy), got(copy);
  for (size_t i = 0; i < position.size(); ++i) {
    values[i] = static_cast<float>(i + 1);
    if (position[i] != IndexMap::kNone) expected[position[i]] = values[i];
  }
  for (const size_t chunk : {position.size(), size_t{1}, size_t{7}, size_t{64}}) {
    std::fill(got.begin(), got.end(), 0.f);
    for (size_t i = 0; i < position.size(); i += chunk) {
      WriteForm(map, values.data() + i, i, std::min(chunk, position.size() - i), got.data());
    }
    EXPECT_EQ(got, expected) << "chunks of " << chunk;
  }
}

TEST(IndexMapTest, Identity) {
  std::vector<uint32_t> position(101);
  for (uint32_t i = 0; i < 101; ++i) position[i] = i;
  const IndexMap map = CompressIndexMap(position, 101);
  EXPECT_TRUE(map.identity());
  EXPECT_EQ(map.run, 101u);
  ExpectWrites(position, 101);
  EXPECT_TRUE(CompressIndexMap({0}, 1).identity());
}

TEST(IndexMapTest, RunsAreAsLongAsCanBe) {
  for (const uint32_t rows : {1u, 2u, 3u, 6u, 8u}) {
    for (const uint32_t columns : {2u, 4u, 6u, 9u}) {
      for (const int64_t stride : {-1, 1, 3}) {
        for (const bool first_absent : {false, true}) {
          std::vector<uint32_t> position;
          for (uint32_t row = 0; row < rows; ++row) {
            for (int64_t j = 0; j < columns; ++j) {
              const bool absent = first_absent && row == 0;
              // Rows lie in reverse order, so that no two make one series.
              const int64_t at = int64_t{rows - row} * 100 + j * stride;
              position.push_back(absent ? IndexMap::kNone : static_cast<uint32_t>(at));
            }
          }
          EXPECT_EQ(CompressIndexMap(position, 1000).run, columns)
              << rows << "x" << columns << " stride " << stride;
          ExpectWrites(position, 1000);
        }
      }
    }
  }
}

TEST(IndexMapTest, BlockTransposeHasRunsWithStride) {
  std::vector<uint32_t> position;  // [4][16][16] -> [4][16 transposed]
  for (uint32_t b = 0; b < 4; ++b) {
    for (uint32_t i = 0; i < 16; ++i) {
      for (uint32_t o = 0; o < 16; ++o) position.push_back(b * 256 + o * 16 + i);
    }
  }
  const IndexMap map = CompressIndexMap(position, 1024);
  EXPECT_EQ(map.run, 16u);
  EXPECT_EQ(map.stride, 16);
  EXPECT_EQ(map.base.size(), 64u);
  EXPECT_FALSE(map.identity());
  ExpectWrites(position, 1024);
}

TEST(IndexMapTest, PaddingOfBothSides) {
  std::vector<uint32_t> position;  // rows of 8 master elements, 3 real; the copy has rows of 5
  for (uint32_t row = 0; row < 6; ++row) {
    for (uint32_t c = 0; c < 8; ++c) position.push_back(c < 3 ? row * 5 + c : IndexMap::kNone);
  }
  EXPECT_EQ(CompressIndexMap(position, 30).run, 1u);
  ExpectWrites(position, 30);
  for (uint32_t i = 0; i < 16; ++i) position[i] = IndexMap::kNone;
  for (uint32_t i = 16; i < 48; ++i) position[i] = i - 16;
  EXPECT_EQ(CompressIndexMap(position, 32).run, 16u);
  ExpectWrites(position, 32);
}

TEST(IndexMapTest, Backwards) {
  std::vector<uint32_t> position(12);
  for (uint32_t i = 0; i < 12; ++i) position[i] = 11 - i;
  EXPECT_EQ(CompressIndexMap(position, 12).stride, -1);
  EXPECT_EQ(CompressIndexMap(position, 12).base.size(), 1u);
  ExpectWrites(position, 12);
}

TEST(IndexMapTest, Scatter) {
  std::vector<uint32_t> position(128);
  for (uint32_t i = 0; i < 128; ++i) position[i] = i * 37 % 128;
  position[5] = IndexMap::kNone;
  ExpectWrites(position, 128);
}

TEST(IndexMapTest, WrongMapsAreRefused) {
  IndexMap map = CompressIndexMap({0, 1, 2, 3}, 4);
  EXPECT_THROW(CheckMap(map, 5), Error);
  map.copy_elements = 3;
  EXPECT_THROW(CheckMap(map, 4), Error);
  map = CompressIndexMap({3, 2, 1, 0}, 4);
  map.base[0] = 2;
  EXPECT_THROW(CheckMap(map, 4), Error);
}

}  // namespace
}  // namespace parax
