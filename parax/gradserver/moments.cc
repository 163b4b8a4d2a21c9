#include "parax/gradserver/moments_internal.h"

namespace parax {

void MomentPool::Pool(const float* mean, const float* variance, double count) {
  if (count <= 0) return;
  const double total = count_ + count;
  const double share = count / total;
  const double cross = count_ * share;
  for (size_t c = 0; c < channels_; ++c) {
    const double delta = double{mean[c]} - mean_[c];
    mean_[c] += delta * share;
    squares_[c] += double{variance[c]} * count + delta * delta * cross;
  }
  count_ = total;
}

void MomentPool::Update(float* running_mean, float* running_variance, double momentum) const {
  if (count_ <= 0) return;
  const double divisor = count_ > 1 ? count_ - 1 : count_;
  for (size_t c = 0; c < channels_; ++c) {
    running_mean[c] = static_cast<float>((1 - momentum) * running_mean[c] + momentum * mean_[c]);
    running_variance[c] = static_cast<float>((1 - momentum) * running_variance[c] +
                                             momentum * (squares_[c] / divisor));
  }
}

}  // namespace parax
