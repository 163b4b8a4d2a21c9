#include <algorithm>
#include <cmath>

#include "parax/data/transform.h"

namespace parax {
namespace {

// PIL's convert("L").
int Gray(const uint8_t* p) { return (p[0] * 19595 + p[1] * 38470 + p[2] * 7471 + 0x8000) >> 16; }

// PIL's Image.blend: from `base` towards (or beyond) `value`.
uint8_t Blend(float base, float value, float factor) {
  return static_cast<uint8_t>(std::clamp(base + factor * (value - base), 0.0f, 255.0f));
}

// Shifts the hue by `turns`, keeping saturation and value (Foley et al., HSV hexcone model).
void ShiftHue(float turns, uint8_t* p) {
  const int high = std::max({p[0], p[1], p[2]}), low = std::min({p[0], p[1], p[2]});
  const float chroma = static_cast<float>(high - low);
  if (high == low) return;
  float sector;  // 0 .. 6: red, yellow, green, cyan, blue, magenta
  if (high == p[0]) {
    sector = static_cast<float>(p[1] - p[2]) / chroma;
  } else if (high == p[1]) {
    sector = static_cast<float>(p[2] - p[0]) / chroma + 2.0f;
  } else {
    sector = static_cast<float>(p[0] - p[1]) / chroma + 4.0f;
  }
  for (int c = 0; c < 3; ++c) {
    // Distance of the new hue from this channel's own, over the circle of six sectors.
    float d = sector + 6.0f * turns - 2.0f * static_cast<float>(c);
    d -= 6.0f * std::floor(d / 6.0f);
    d = std::min(d, 6.0f - d);
    const float share = std::clamp(2.0f - d, 0.0f, 1.0f);
    p[c] = static_cast<uint8_t>(static_cast<float>(low) + chroma * share + 0.5f);
  }
}

float MeanGray(const uint8_t* pixels, int64_t n) {
  int64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += Gray(pixels + 3 * i);
  return static_cast<float>((2 * sum + n) / (2 * n));  // int(mean + 0.5), as PIL's
}

}  // namespace

Jitter DrawJitter(const TransformOptions& o, RandomStream& random) {
  Jitter jitter;
  for (int i = 3; i > 0; --i) std::swap(jitter.order[i], jitter.order[random.Below(i + 1)]);
  const auto factor = [&](double x) {
    return x > 0 ? random.Uniform(std::max(0.0, 1.0 - x), 1.0 + x) : 1.0;
  };
  jitter.brightness = factor(o.brightness);
  jitter.contrast = factor(o.contrast);
  jitter.saturation = factor(o.saturation);
  jitter.hue = o.hue > 0 ? random.Uniform(-o.hue, o.hue) : 0.0;
  return jitter;
}

void ApplyJitter(const Jitter& jitter, uint8_t* pixels, int64_t n) {
  const auto blend_all = [&](double factor, auto base) {
    const float f = static_cast<float>(factor);
    for (int64_t i = 0; i < n; ++i) {
      uint8_t* p = pixels + 3 * i;
      const float b = base(p);
      for (int c = 0; c < 3; ++c) p[c] = Blend(b, p[c], f);
    }
  };
  for (int step : jitter.order) {
    if (step == 0 && jitter.brightness != 1) {
      blend_all(jitter.brightness, [](const uint8_t*) { return 0.0f; });
    } else if (step == 1 && jitter.contrast != 1) {
      const float mean = MeanGray(pixels, n);
      blend_all(jitter.contrast, [mean](const uint8_t*) { return mean; });
    } else if (step == 2 && jitter.saturation != 1) {
      blend_all(jitter.saturation, [](const uint8_t* p) { return static_cast<float>(Gray(p)); });
    } else if (step == 3 && jitter.hue != 0) {
      for (int64_t i = 0; i < n; ++i) ShiftHue(static_cast<float>(jitter.hue), pixels + 3 * i);
    }
  }
}

}  // namespace parax
