#pragma once

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "parax/data/hash.h"
#include "parax/data/input.h"

// What tests of input sources take from them.
namespace parax {

inline constexpr int kSize = 8;
inline constexpr int64_t kPixels = int64_t{3} * kSize * kSize;

struct Taken {  // one micro-batch, pixels and probabilities as a hash
  int64_t iteration = 0;
  std::vector<int64_t> ids;
  std::vector<int32_t> labels;
  uint64_t content = 0;
  bool operator==(const Taken&) const = default;
};

inline uint64_t Content(const MicroBatch& batch, int64_t classes) {
  const auto hash = [](const float* values, int64_t n, uint64_t seed) {
    return Hash64(std::as_bytes(std::span(values, static_cast<size_t>(n))), seed);
  };
  const uint64_t pixels = hash(batch.images, batch.count * kPixels, 0);
  return batch.probabilities ? hash(batch.probabilities, batch.count * classes, pixels) : pixels;
}

inline Taken Take(InputSource& source, int leaf, int64_t iteration = 0) {
  MicroBatch batch;
  EXPECT_EQ(source.Acquire(leaf, batch), Outcome::kOk);
  if (batch.count == 0) return {};
  const Taken taken{.iteration = iteration,
                    .ids = {batch.sample_ids, batch.sample_ids + batch.count},
                    .labels = {batch.labels, batch.labels + batch.count},
                    .content = Content(batch, 3)};
  source.Release(leaf);
  return taken;
}

}  // namespace parax
