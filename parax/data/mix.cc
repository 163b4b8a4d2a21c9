#include <algorithm>
#include <cmath>

#include "parax/data/transform.h"

namespace parax {
namespace {

// The logarithm of a Gamma(shape, 1) draw (Marsaglia and Tsang 2000; below 1 by
// Gamma(a) = Gamma(a + 1) * u^(1/a), which underflows for small shapes unless kept as a logarithm).
double DrawLogGamma(double shape, RandomStream& random) {
  if (shape < 1) {
    const double log_u = std::log(1.0 - random.Uniform());
    return DrawLogGamma(shape + 1, random) + log_u / shape;
  }
  const double d = shape - 1.0 / 3.0, c = 1.0 / std::sqrt(9.0 * d);
  for (;;) {
    const double x = random.Normal();
    const double v = std::pow(1.0 + c * x, 3);
    if (v <= 0) continue;
    const double log_u = std::log(1.0 - random.Uniform());
    if (log_u < 0.5 * x * x + d - d * v + d * std::log(v)) return std::log(d * v);
  }
}

struct Box {
  int64_t top, bottom, left, right;
};

// timm's rand_bbox: a box of area 1 - lambda about a uniform centre, clipped to the image.
Box DrawBox(double lambda, int64_t h, int64_t w, RandomStream& random) {
  const double side = std::sqrt(1.0 - lambda);
  const int64_t half_h = static_cast<int64_t>(double(h) * side) / 2;
  const int64_t half_w = static_cast<int64_t>(double(w) * side) / 2;
  const int64_t y = static_cast<int64_t>(random.Below(h));
  const int64_t x = static_cast<int64_t>(random.Below(w));
  return {std::max<int64_t>(y - half_h, 0), std::min(y + half_h, h),
          std::max<int64_t>(x - half_w, 0), std::min(x + half_w, w)};
}

void MixPair(float lambda, float* a, float* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float x = a[i], y = b[i];
    a[i] = lambda * x + (1 - lambda) * y;
    b[i] = lambda * y + (1 - lambda) * x;
  }
}

}  // namespace

double DrawBeta(double alpha, RandomStream& random) {
  const double x = DrawLogGamma(alpha, random);
  const double y = DrawLogGamma(alpha, random);
  return 1.0 / (1.0 + std::exp(y - x));
}

void MixBatch(const MixOptions& options, RandomStream& random, float* images, int64_t n, int64_t h,
              int64_t w, int64_t c, const int32_t* labels, int64_t classes, float* probabilities) {
  double lambda = 1;  // the share of a sample's own label
  const int64_t size = h * w * c;
  if (options.enabled() && random.Uniform() < options.probability) {
    const bool both = options.mixup > 0 && options.cutmix > 0;
    const bool cut = both ? random.Uniform() < options.switch_probability : options.cutmix > 0;
    lambda = DrawBeta(cut ? options.cutmix : options.mixup, random);
    Box box{0, 0, 0, 0};
    if (cut) {
      box = DrawBox(lambda, h, w, random);
      lambda = 1.0 - double((box.bottom - box.top) * (box.right - box.left)) / double(h * w);
    }
    for (int64_t i = 0; i < n / 2; ++i) {
      float* a = images + i * size;
      float* b = images + (n - 1 - i) * size;
      if (!cut) MixPair(static_cast<float>(lambda), a, b, size);
      for (int64_t y = box.top; y < box.bottom; ++y) {
        const int64_t at = (y * w + box.left) * c;
        std::swap_ranges(a + at, a + at + (box.right - box.left) * c, b + at);
      }
    }
  }
  const float off = static_cast<float>(options.smoothing / double(classes));
  const float on = static_cast<float>(1.0 - options.smoothing);
  std::fill_n(probabilities, n * classes, off);
  for (int64_t i = 0; i < n; ++i) {
    probabilities[i * classes + labels[i]] += on * static_cast<float>(lambda);
    probabilities[i * classes + labels[n - 1 - i]] += on * static_cast<float>(1.0 - lambda);
  }
}

}  // namespace parax
