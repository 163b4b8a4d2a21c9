#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parax/base/philox.h"
#include "parax/data/image.h"
#include "parax/data/resize.h"

namespace parax {

struct Normalization {
  std::array<float, 3> mean{0.485f, 0.456f, 0.406f};  // of pixels in [0, 1]
  std::array<float, 3> std{0.229f, 0.224f, 0.225f};
};
// "imagenet", "cifar10", "half" (-1 .. 1), "none" (0 .. 1), or "m,m,m/s,s,s". Throws UsageError.
Normalization ParseNormalization(std::string_view text);

inline constexpr int64_t kMostImageSize = 4096;  // pixels of a side

// How an image becomes a network's input. Names and semantics are torchvision's.
struct TransformOptions {
  int image_size = 224;  // output height and width
  Interpolation interpolation = Interpolation::kBilinear;
  Normalization normalization;
  bool scaled_decoding = true;  // let the JPEG decoder reduce by 2, 4, 8 while enough pixels stay

  bool train = false;
  // train: one of the two crops, then flip, colour jitter, normalisation, erasing.
  // RandomResizedCrop, unless pad_crop is used.
  double min_area = 0.08, max_area = 1.0;
  double min_aspect = 3.0 / 4.0, max_aspect = 4.0 / 3.0;
  // >= 0: the short side becomes image_size (CIFAR: it is already), then RandomCrop with so many
  // zero pixels of padding. -1: RandomResizedCrop.
  int pad_crop = -1;
  double flip = 0.5;  // probability
  // ColorJitter: factors from [max(0, 1 - x), 1 + x]; hue from [-x, x], x <= 0.5. All 0: none.
  double brightness = 0, contrast = 0, saturation = 0, hue = 0;
  double erasing = 0;  // RandomErasing's probability; area 0.02 .. 0.33, aspect 0.3 .. 3.3, value 0

  // eval: the short side becomes this, then the centre is cropped; 0: image_size (nothing is lost
  // of a square image).
  int eval_resize = 256;
};

// Checks ranges. Throws UsageError saying which option is wrong and what would be right.
void CheckTransformOptions(const TransformOptions& options);

// One per thread (it keeps scratch buffers); copies share nothing. All chance comes from `random`,
// made by the caller from (seed, RandomUse::kAugment, epoch, sample): same stream, same output.
class Transform {
 public:
  explicit Transform(const TransformOptions& options);

  const TransformOptions& options() const { return options_; }
  int64_t output_floats() const { return int64_t{3} * options_.image_size * options_.image_size; }

  // An encoded file to float32 NHWC (image_size x image_size x 3), normalised. Only the part of
  // the file that is needed is decoded. Empty, or why the file is broken in one line.
  std::string Run(std::span<const std::byte> file, RandomStream& random, Decoder& decoder,
                  float* out);
  // The same from decoded pixels of a whole image.
  void Apply(const Image& image, RandomStream& random, float* out);

 private:
  ResizeJob PlanJob(int width, int height, RandomStream& random) const;
  void Finish(const Image& image, const ResizeJob& job, RandomStream& random, float* out);

  TransformOptions options_;
  std::array<float, 3> scale_, shift_;
  Resizer resizer_;
  Image decoded_;
  std::vector<uint8_t> bytes_;
};

// torchvision's ColorJitter on PIL images: in place, n pixels of RGB.
struct Jitter {
  double brightness = 1, contrast = 1, saturation = 1;  // factors; 1: as it is
  double hue = 0;                                       // turns, -0.5 .. 0.5
  std::array<int, 4> order{0, 1, 2, 3};                 // 0 brightness .. 3 hue
};
Jitter DrawJitter(const TransformOptions& options, RandomStream& random);
void ApplyJitter(const Jitter& jitter, uint8_t* pixels, int64_t n);

// Mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019) inside a finished micro-batch, as timm
// does: sample i is mixed with sample n-1-i, one lambda a micro-batch. When both are on, each
// micro-batch takes one of them (cutmix with probability switch_probability).
struct MixOptions {
  double mixup = 0;   // alpha of the Beta distribution; 0: off
  double cutmix = 0;  // alike
  double switch_probability = 0.5;
  double probability = 1.0;  // of mixing at all
  double smoothing = 0;      // label smoothing of the written probabilities
  bool enabled() const { return mixup > 0 || cutmix > 0; }
};
// Mixes `images` (n x h x w x c) in place and writes `probabilities` (n x classes), also when no
// mixing was drawn.
void MixBatch(const MixOptions& options, RandomStream& random, float* images, int64_t n, int64_t h,
              int64_t w, int64_t c, const int32_t* labels, int64_t classes, float* probabilities);

double DrawBeta(double alpha, RandomStream& random);  // Beta(alpha, alpha)

}  // namespace parax
