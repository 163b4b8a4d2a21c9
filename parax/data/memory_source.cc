
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "parax/base/error.h"
#include "parax/base/parallel_internal.h"
#include "parax/base/philox.h"
#include "parax/data/cursor.h"
#include "parax/data/pipeline.h"
#include "parax/numa/arena.h"

namespace parax {
namespace {

// One leaf's place in the order, and memory for one micro-batch of it.
struct alignas(64) Leaf {
  LeafCursor cursor;
  Arena images = {};
  std::vector<int32_t> labels = {};
  std::vector<int64_t> ids = {};
};

class SyntheticSource final : public InputSource {
 public:
  SyntheticSource(int64_t image_floats, int64_t classes, const BatchPlan& plan, uint64_t seed,
                  const std::vector<int>& nodes) {
    const auto count = static_cast<size_t>(std::min(plan.micro_batch, plan.batch));
    const size_t floats = count * static_cast<size_t>(image_floats);
    for (int i = 0; i < plan.leaves; ++i) {
      leaves_.push_back({.cursor = {plan, i, 0, std::numeric_limits<int64_t>::max()}});
    }
    ParallelFor(leaves_.size(), [&](size_t i) {
      Leaf& leaf = leaves_[i];
      leaf.images = Arena(floats * sizeof(float), {.os_node = nodes.empty() ? -1 : nodes.at(i)});
      RandomStream random(seed, RandomUse::kSynthetic, i);
      float* pixels = reinterpret_cast<float*>(leaf.images.data());
      // Uniform, mean 0, variance 1.
      const float width = 2 * std::sqrt(3.0f) * 0x1p-32f;
      for (size_t k = 0; k < floats; ++k) {
        pixels[k] = (static_cast<float>(random.Next()) - 0x1p31f) * width;
      }
      leaf.ids.resize(count);
      leaf.labels.resize(count);
      for (int32_t& label : leaf.labels) {
        label = static_cast<int32_t>(random.Below(static_cast<uint64_t>(classes)));
      }
    });
  }

  Outcome Acquire(int leaf, MicroBatch& batch) noexcept override {
    Leaf& l = leaves_[static_cast<size_t>(leaf)];
    batch = {};
    if (l.cursor.ended()) return Outcome::kOk;
    const BatchPlan::Piece piece = l.cursor.piece();
    std::iota(l.ids.begin(), l.ids.begin() + piece.count, piece.first);
    batch = {.images = reinterpret_cast<const float*>(l.images.data()),
             .labels = l.labels.data(),
             .probabilities = nullptr,
             .sample_ids = l.ids.data(),
             .count = piece.count};
    return Outcome::kOk;
  }
  void Release(int leaf) noexcept override { leaves_[static_cast<size_t>(leaf)].cursor.Advance(); }

 private:
  std::vector<Leaf> leaves_;
};

class TensorSource final : public InputSource {
 public:
  TensorSource(const TensorData& data, const TensorOptions& options)
      : data_(data), options_(options) {
    const BatchPlan& plan = options.plan;
    const auto count = static_cast<size_t>(std::min(plan.micro_batch, plan.batch));
    const int64_t end = options.epochs * plan.IterationsPerEpoch();
    for (int i = 0; i < plan.leaves; ++i) {
      leaves_.push_back({.cursor = {plan, i, options.first_iteration, end}});
      leaves_.back().ids.resize(count);
      if (!options.shuffle) continue;
      leaves_.back().images = Arena(count * ImageFloats() * sizeof(float));
      leaves_.back().labels.resize(count);
    }
  }

  Outcome Acquire(int leaf, MicroBatch& batch) noexcept override {
    Leaf& l = leaves_[static_cast<size_t>(leaf)];
    batch = {};
    if (l.cursor.ended()) return Outcome::kOk;
    const BatchPlan::Piece piece = l.cursor.piece();
    batch.sample_ids = l.ids.data();
    batch.count = piece.count;
    if (options_.shuffle) {
      Gather(l, piece);
      batch.images = reinterpret_cast<const float*>(l.images.data());
      batch.labels = l.labels.data();
    } else {
      std::iota(l.ids.begin(), l.ids.begin() + piece.count, piece.first);
      const auto first = static_cast<size_t>(piece.first);
      batch.images = data_.images.data() + first * ImageFloats();
      batch.labels = data_.labels.data() + first;
    }
    return Outcome::kOk;
  }
  void Release(int leaf) noexcept override { leaves_[static_cast<size_t>(leaf)].cursor.Advance(); }

 private:
  size_t ImageFloats() const { return static_cast<size_t>(data_.image_floats); }

  void Gather(Leaf& l, BatchPlan::Piece piece) const {
    const Permutation order(options_.plan.samples, options_.seed,
                            static_cast<uint64_t>(l.cursor.epoch()));
    for (int64_t k = 0; k < piece.count; ++k) {
      const auto slot = static_cast<size_t>(k);
      const auto id = static_cast<size_t>(order(piece.first + k));
      std::memcpy(reinterpret_cast<float*>(l.images.data()) + slot * ImageFloats(),
                  data_.images.data() + id * ImageFloats(), ImageFloats() * sizeof(float));
      l.labels[slot] = data_.labels[id];
      l.ids[slot] = static_cast<int64_t>(id);
    }
  }

  TensorData data_;
  TensorOptions options_;
  std::vector<Leaf> leaves_;
};

}  // namespace

std::unique_ptr<InputSource> MakeSyntheticSource(int64_t height, int64_t width, int64_t channels,
                                                 int64_t classes, const BatchPlan& plan,
                                                 uint64_t seed,
                                                 const std::vector<int>& leaf_os_nodes) {
  if (plan.IterationsPerEpoch() == 0) {
    FailUsage("{} synthetic samples do not fill a batch of {}", plan.samples, plan.batch);
  }
  return std::make_unique<SyntheticSource>(height * width * channels, classes, plan, seed,
                                           leaf_os_nodes);
}

std::unique_ptr<InputSource> MakeTensorSource(const TensorData& data,
                                              const TensorOptions& options) {
  const auto samples = static_cast<size_t>(options.plan.samples);
  if (data.labels.size() != samples ||
      data.images.size() != samples * static_cast<size_t>(data.image_floats)) {
    FailUsage("{} samples of {} values do not fit {} values and {} labels", samples,
              data.image_floats, data.images.size(), data.labels.size());
  }
  return std::make_unique<TensorSource>(data, options);
}

}  // namespace parax
