#include "parax/data/transform.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "parax/base/error.h"

namespace parax {
namespace {

// Python's round(): halves to even (the default rounding mode).
int RoundHalfEven(double value) { return static_cast<int>(std::nearbyint(value)); }

struct Crop {
  int x, y, width, height;
};

// torchvision's RandomResizedCrop.get_params.
Crop DrawCrop(const TransformOptions& o, int width, int height, RandomStream& random) {
  const double area = double(width) * height;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * random.Uniform(o.min_area, o.max_area);
    const double aspect = std::exp(random.Uniform(std::log(o.min_aspect), std::log(o.max_aspect)));
    const int w = RoundHalfEven(std::sqrt(target * aspect));
    const int h = RoundHalfEven(std::sqrt(target / aspect));
    if (w < 1 || w > width || h < 1 || h > height) continue;
    const int y = static_cast<int>(random.Below(height - h + 1));
    return {static_cast<int>(random.Below(width - w + 1)), y, w, h};
  }
  const double aspect = double(width) / height;  // the largest centre crop of allowed aspect
  int w = width, h = height;
  if (aspect < o.min_aspect) h = std::clamp(RoundHalfEven(w / o.min_aspect), 1, height);
  if (aspect > o.max_aspect) w = std::clamp(RoundHalfEven(h * o.max_aspect), 1, width);
  return {(width - w) / 2, (height - h) / 2, w, h};
}

// torchvision's RandomErasing with value 0, which after normalisation is the mean colour.
void Erase(int size, RandomStream& random, float* pixels) {
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = double(size) * size * random.Uniform(0.02, 0.33);
    const double aspect = std::exp(random.Uniform(std::log(0.3), std::log(3.3)));
    const int h = RoundHalfEven(std::sqrt(area * aspect));
    const int w = RoundHalfEven(std::sqrt(area / aspect));
    if (h >= size || w >= size) continue;
    const int64_t top = static_cast<int64_t>(random.Below(size - h + 1));
    const int64_t left = static_cast<int64_t>(random.Below(size - w + 1));
    for (int64_t y = top; y < top + h; ++y) {
      std::fill_n(pixels + 3 * (y * size + left), 3 * w, 0.0f);
    }
    return;
  }
}

void Require(bool right, const char* what) {
  if (!right) FailUsage("{}", what);
}

}  // namespace

Normalization ParseNormalization(std::string_view text) {
  if (text == "imagenet") return {};
  if (text == "cifar10") return {{0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}};
  if (text == "half") return {{0.5f, 0.5f, 0.5f}, {0.5f, 0.5f, 0.5f}};
  if (text == "none") return {{0, 0, 0}, {1, 1, 1}};
  Normalization result;
  const char* at = text.data();
  const char* end = at + text.size();
  for (int i = 0; i < 6; ++i) {
    float& value = i < 3 ? result.mean[i] : result.std[i - 3];
    const auto [stop, error] = std::from_chars(at, end, value);
    const char separator = i == 5 ? '\0' : i == 2 ? '/' : ',';
    const bool follows = i == 5 ? stop == end : stop != end && *stop == separator;
    if (error != std::errc{} || !follows || !std::isfinite(value) || (i >= 3 && value <= 0)) {
      FailUsage(
          "normalisation '{}' is neither imagenet, cifar10, half, none nor mean,mean,mean/"
          "std,std,std with std > 0",
          text);
    }
    at = stop + 1;
  }
  return result;
}

void CheckTransformOptions(const TransformOptions& o) {
  Require(o.image_size >= 1 && o.image_size <= kMostImageSize, "image size must be 1 .. 4096");
  Require(0 < o.min_area && o.min_area <= o.max_area && o.max_area <= 1,
          "random resized crop's areas must be 0 < min <= max <= 1");
  Require(0 < o.min_aspect && o.min_aspect <= o.max_aspect,
          "random resized crop's aspect ratios must be 0 < min <= max");
  Require(o.pad_crop >= -1 && o.pad_crop < o.image_size,
          "pad-and-crop's padding must be smaller than the image");
  Require(o.flip >= 0 && o.flip <= 1, "flip's probability must be 0 .. 1");
  Require(o.erasing >= 0 && o.erasing <= 1, "random erasing's probability must be 0 .. 1");
  Require(o.brightness >= 0 && o.contrast >= 0 && o.saturation >= 0,
          "colour jitter's brightness, contrast and saturation must be 0 or more");
  Require(o.hue >= 0 && o.hue <= 0.5, "colour jitter's hue must be 0 .. 0.5");
  Require(o.eval_resize == 0 || o.eval_resize >= o.image_size,
          "the short side for evaluation must be 0 or at least the image size");
  for (int c = 0; c < 3; ++c) {
    Require(o.normalization.std[c] > 0, "normalisation's standard deviation must be above 0");
  }
}

Transform::Transform(const TransformOptions& options) : options_(options) {
  CheckTransformOptions(options);
  for (int c = 0; c < 3; ++c) {
    scale_[c] = 1.0f / (255.0f * options.normalization.std[c]);
    shift_[c] = -options.normalization.mean[c] / options.normalization.std[c];
  }
}

// Everything that is drawn before the pixels are known.
ResizeJob Transform::PlanJob(int width, int height, RandomStream& random) const {
  const TransformOptions& o = options_;
  ResizeJob job;
  job.interpolation = o.interpolation;
  job.window_width = job.window_height = o.image_size;
  if (o.train && o.pad_crop < 0) {
    const Crop crop = DrawCrop(o, width, height, random);
    job.x0 = crop.x;
    job.y0 = crop.y;
    job.x1 = crop.x + crop.width;
    job.y1 = crop.y + crop.height;
    job.width = job.height = o.image_size;
  } else {
    const int side = o.train || o.eval_resize == 0 ? o.image_size : o.eval_resize;
    const double longer = double(side) * std::max(width, height) / std::min(width, height);
    job.x1 = width;
    job.y1 = height;
    job.width = width <= height ? side : static_cast<int>(longer);
    job.height = width <= height ? static_cast<int>(longer) : side;
    if (o.train) {
      job.top = static_cast<int>(random.Below(job.height + 2 * o.pad_crop - o.image_size + 1));
      job.left = static_cast<int>(random.Below(job.width + 2 * o.pad_crop - o.image_size + 1));
      job.top -= o.pad_crop;
      job.left -= o.pad_crop;
    } else {
      job.top = RoundHalfEven((job.height - o.image_size) / 2.0);
      job.left = RoundHalfEven((job.width - o.image_size) / 2.0);
    }
  }
  job.flip = o.train && random.Uniform() < o.flip;
  return job;
}

void Transform::Finish(const Image& image, const ResizeJob& job, RandomStream& random, float* out) {
  const TransformOptions& o = options_;
  const bool jitter =
      o.train && (o.brightness > 0 || o.contrast > 0 || o.saturation > 0 || o.hue > 0);
  if (jitter) {
    bytes_.resize(static_cast<size_t>(output_floats()));
    resizer_.Run(image, job, bytes_.data());
    ApplyJitter(DrawJitter(o, random), bytes_.data(), output_floats() / 3);
    Normalize(bytes_.data(), output_floats(), scale_.data(), shift_.data(), out);
  } else {
    resizer_.Run(image, job, scale_.data(), shift_.data(), out);
  }
  if (o.train && random.Uniform() < o.erasing) Erase(o.image_size, random, out);
}

void Transform::Apply(const Image& image, RandomStream& random, float* out) {
  const ResizeJob job = PlanJob(image.width, image.height, random);
  Finish(image, job, random, out);
}

std::string Transform::Run(std::span<const std::byte> file, RandomStream& random, Decoder& decoder,
                           float* out) {
  const ImageInfo& info = decoder.Open(file);
  if (!info.error.empty()) return info.error;
  ResizeJob job = PlanJob(info.width, info.height, random);
  DecodeHint hint = NeededRegion(job, info.width, info.height);
  const auto enough = [&](int reduction) {
    return job.x1 - job.x0 >= double(job.width) * reduction &&
           job.y1 - job.y0 >= double(job.height) * reduction;
  };
  while (options_.scaled_decoding && hint.max_reduction < 8 && enough(2 * hint.max_reduction)) {
    hint.max_reduction *= 2;
  }
  std::string error = decoder.Read(hint, decoded_);
  if (!error.empty()) return error;
  const double scale = decoded_.eighths / 8.0;  // from the file's pixels to the decoded ones
  job.x0 = job.x0 * scale - decoded_.left;
  job.x1 = job.x1 * scale - decoded_.left;
  job.y0 = job.y0 * scale - decoded_.top;
  job.y1 = job.y1 * scale - decoded_.top;
  Finish(decoded_, job, random, out);
  return {};
}

}  // namespace parax
