#pragma once

#include <cstddef>

namespace parax {

// Statistics of a channel range over several batches, pooled in the order of the Pool calls (Chan,
// Golub, LeVeque, "Algorithms for computing the sample variance", 1983), then one momentum update.
class MomentPool {
 public:
  static constexpr size_t kChannels = 64;  // at most

  explicit MomentPool(size_t channels) : channels_(channels) {}
  // Batch mean and biased variance over `count` values a channel.
  void Pool(const float* mean, const float* variance, double count);
  // running = (1 - momentum) running + momentum batch, the variance unbiased (N / (N - 1); N = 1:
  // as it is). Nothing when no batch came.
  void Update(float* running_mean, float* running_variance, double momentum) const;

 private:
  size_t channels_;
  double count_ = 0;
  double mean_[kChannels] = {};
  double squares_[kChannels] = {};  // sum of squared distances from the mean
};

}  // namespace parax
