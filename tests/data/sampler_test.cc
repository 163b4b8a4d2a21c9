#include "parax/data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace parax {
namespace {

std::vector<int64_t> Order(int64_t n, uint64_t seed, uint64_t epoch) {
  const Permutation permutation(n, seed, epoch);
  std::vector<int64_t> order;
  for (int64_t i = 0; i < n; ++i) order.push_back(permutation(i));
  return order;
}

TEST(PermutationTest, IsABijectionForEverySize) {
  std::vector<int64_t> sizes(300);
  std::iota(sizes.begin(), sizes.end(), 1);
  for (int64_t n : {1023, 1024, 1025, 4096, 4097, 50000, 65536, 65537, 1281167}) sizes.push_back(n);
  for (int64_t n : sizes) {
    std::vector<bool> seen(static_cast<size_t>(n));
    for (int64_t x : Order(n, 7, 3)) {
      ASSERT_GE(x, 0) << n;
      ASSERT_LT(x, n);
      ASSERT_FALSE(seen[static_cast<size_t>(x)]) << n << " gives " << x << " twice";
      seen[static_cast<size_t>(x)] = true;
    }
  }
}

TEST(PermutationTest, DependsOnSeedAndEpochOnly) {
  EXPECT_EQ(Order(1000, 1, 2), Order(1000, 1, 2));
  EXPECT_NE(Order(1000, 1, 2), Order(1000, 1, 3));
  EXPECT_NE(Order(1000, 1, 2), Order(1000, 2, 2));
}

// Over epochs every sample visits every position equally often, and neighbours come apart.
TEST(PermutationTest, LooksRandom) {
  constexpr int kN = 50, kEpochs = 4000;
  std::vector<double> hits(kN * kN);
  int neighbours = 0;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const std::vector<int64_t> order = Order(kN, 11, static_cast<uint64_t>(epoch));
    for (int i = 0; i < kN; ++i) {
      ++hits[static_cast<size_t>(i * kN + order[static_cast<size_t>(i)])];
      if (i > 0 && order[static_cast<size_t>(i)] == order[static_cast<size_t>(i - 1)] + 1) {
        ++neighbours;
      }
    }
  }
  double chi_square = 0;
  for (double h : hits) chi_square += (h - kEpochs / kN) * (h - kEpochs / kN) / (kEpochs / kN);
  const double freedom = (kN - 1) * (kN - 1);
  EXPECT_NEAR(chi_square, freedom, 5 * std::sqrt(2 * freedom));
  // One expected an epoch, less 1/kN, variance about 1.
  EXPECT_NEAR(neighbours, kEpochs * (1 - 1.0 / kN), 5 * std::sqrt(kEpochs));
}

void ExpectCovers(const BatchPlan& plan) {
  int64_t next = 0;
  for (int64_t it = 0; it < plan.IterationsPerEpoch(); ++it) {
    int64_t most = 0, least = plan.batch, in_batch = 0;
    for (int leaf = 0; leaf < plan.leaves; ++leaf) {
      const BatchPlan::Piece share = plan.Share(it, leaf);
      EXPECT_EQ(share.first, next);
      most = std::max(most, share.count);
      least = std::min(least, share.count);
      in_batch += share.count;
      const int micros = plan.MicroBatches(it, leaf);
      for (int micro = 0; micro < micros; ++micro) {
        const BatchPlan::Piece piece = plan.MicroBatch(it, leaf, micro);
        EXPECT_EQ(piece.first, next);
        EXPECT_GT(piece.count, 0);
        EXPECT_LE(piece.count, plan.micro_batch);
        if (micro + 1 < micros) {
          EXPECT_EQ(piece.count, plan.micro_batch);
        }
        next += piece.count;
      }
      EXPECT_EQ(next, share.first + share.count);
    }
    EXPECT_LE(most - least, 1);
    EXPECT_EQ(in_batch, plan.BatchSize(it));
  }
  EXPECT_EQ(next, plan.drop_last ? plan.samples / plan.batch * plan.batch : plan.samples);
}

TEST(BatchPlanTest, CoversEverySampleOnceInOrder) {
  for (int64_t samples : {0, 1, 2, 7, 64, 100}) {
    for (int64_t batch : {1, 3, 8, 100}) {
      for (int leaves : {1, 2, 3, 5}) {
        for (int64_t micro : {1, 2, 4, 16}) {
          for (bool drop_last : {false, true}) {
            ExpectCovers({samples, batch, leaves, micro, drop_last});
          }
        }
      }
    }
  }
}

// Case I: one sample, three leaves.
TEST(BatchPlanTest, OneSampleLeavesTheOthersEmpty) {
  const BatchPlan plan{.samples = 7, .batch = 6, .leaves = 3, .micro_batch = 2};
  EXPECT_EQ(plan.IterationsPerEpoch(), 2);
  EXPECT_EQ(plan.BatchSize(1), 1);
  EXPECT_EQ(plan.MicroBatches(0, 2), 1);
  EXPECT_EQ(plan.MicroBatches(1, 0), 1);
  EXPECT_EQ(plan.MicroBatch(1, 0, 0).first, 6);
  EXPECT_EQ(plan.MicroBatches(1, 1), 0);
  EXPECT_EQ(plan.MicroBatches(1, 2), 0);
}

}  // namespace
}  // namespace parax
