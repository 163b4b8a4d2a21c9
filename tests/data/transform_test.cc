#include "parax/data/transform.h"

#include <gtest/gtest.h>

#include <set>

#include "golden_images.h"
#include "image_writer.h"
#include "parax/base/error.h"

namespace parax {
namespace {

RandomStream Stream(uint64_t sample) { return {7, RandomUse::kAugment, 3, sample}; }

// No normalisation and no chance, so that outputs are bytes / 255.
TransformOptions Plain(int size) {
  TransformOptions options;
  options.image_size = size;
  options.eval_resize = 0;
  options.normalization = ParseNormalization("none");
  options.flip = 0;
  return options;
}

std::vector<float> Apply(const TransformOptions& options, const Image& image, uint64_t sample = 0) {
  Transform transform(options);
  std::vector<float> out(transform.output_floats());
  RandomStream random = Stream(sample);
  transform.Apply(image, random, out.data());
  return out;
}

TEST(TransformGolden, EvaluatesAsTorchvision) {
  TransformOptions options = Plain(33);
  options.eval_resize = 40;
  const Image expected = Load("eval.png");
  const std::vector<float> out = Apply(options, Load("source.png"));
  for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i] * 255, expected.pixels[i], 2.01);
}

TEST(TransformGolden, JittersAsTorchvision) {
  const auto index = GoldenIndex();
  ASSERT_EQ(index["jitter"].size(), 8u);
  for (const auto& entry : index["jitter"]) {
    Image image = Load("source.png");
    const Image expected = Load(entry["file"]);
    Jitter jitter;
    const double factor = entry["factor"];
    if (entry["kind"] == "brightness") jitter.brightness = factor;
    if (entry["kind"] == "contrast") jitter.contrast = factor;
    if (entry["kind"] == "saturation") jitter.saturation = factor;
    if (entry["kind"] == "hue") jitter.hue = factor;
    ApplyJitter(jitter, image.pixels.data(), 97 * 71);
    // PIL truncates hue to 8 bits on the way there and the shift too, each worth six levels of a
    // fully saturated pixel, and saturation and the result, one level each.
    const int allowed = entry["kind"] == "hue" ? 14 : 1;
    EXPECT_LE(MaxDifference(image.pixels.data(), expected.pixels.data(), 97 * 71 * 3), allowed)
        << entry;
  }
}

TEST(Transform, NormalizesByMeanAndStd) {
  Image image = MakePicture(8, 8);
  TransformOptions options = Plain(8);
  options.normalization = ParseNormalization("imagenet");
  const std::vector<float> out = Apply(options, image);
  const double mean[3] = {0.485, 0.456, 0.406}, std[3] = {0.229, 0.224, 0.225};
  for (int i = 0; i < 192; ++i) {
    EXPECT_NEAR(out[i], (image.pixels[i] / 255.0 - mean[i % 3]) / std[i % 3], 1e-5);
  }
}

TEST(Transform, FlipMirrorsExactly) {
  const Image image = MakePicture(50, 40);
  TransformOptions options = Plain(24);
  options.train = true;
  options.flip = 0;
  const std::vector<float> straight = Apply(options, image);
  options.flip = 1;
  const std::vector<float> flipped = Apply(options, image);
  for (int y = 0; y < 24; ++y) {
    for (int x = 0; x < 24; ++x) {
      for (int c = 0; c < 3; ++c) {
        ASSERT_EQ(flipped[3 * (24 * y + x) + c], straight[3 * (24 * y + 23 - x) + c]);
      }
    }
  }
}

TEST(Transform, PadAndCropMovesPixelsAndPadsWithBlack) {
  const Image image = MakePicture(32, 32);
  TransformOptions options = Plain(32);
  options.train = true;
  options.pad_crop = 4;
  std::set<std::pair<int, int>> seen;
  for (uint64_t sample = 0; sample < 400; ++sample) {
    const std::vector<float> out = Apply(options, image, sample);
    bool found = false;
    for (int dy = -4; dy <= 4 && !found; ++dy) {
      for (int dx = -4; dx <= 4 && !found; ++dx) {
        found = true;
        for (int i = 0; i < 32 * 32 * 3 && found; ++i) {
          const int x = i / 3 % 32 + dx, y = i / 96 + dy;
          const bool inside = x >= 0 && x < 32 && y >= 0 && y < 32;
          const int expected = inside ? image.row(y)[3 * x + i % 3] : 0;
          found = std::lround(out[i] * 255) == expected;
        }
        if (found) seen.insert({dy, dx});
      }
    }
    ASSERT_TRUE(found) << sample;
  }
  EXPECT_GT(seen.size(), 75u);  // of 81; 400 draws miss one with probability 0.7 %
}

TEST(Transform, SameStreamSameOutput) {
  const std::string file = WriteJpeg(MakePicture(300, 200));
  TransformOptions options;
  options.image_size = 64;
  options.train = true;
  options.brightness = options.contrast = options.saturation = 0.4;
  options.hue = 0.1;
  options.erasing = 0.5;
  Transform a(options), b(options);
  Decoder decoder_a, decoder_b;
  std::vector<float> out_a(a.output_floats()), out_b(b.output_floats()), before;
  for (uint64_t sample = 0; sample < 20; ++sample) {
    RandomStream random_a = Stream(sample), random_b = Stream(sample);
    ASSERT_EQ(a.Run(Bytes(file), random_a, decoder_a, out_a.data()), "");
    // b's buffers hold something else: outputs must not depend on what was done before.
    RandomStream other = Stream(1000 + sample);
    ASSERT_EQ(b.Run(Bytes(file), other, decoder_b, out_b.data()), "");
    ASSERT_EQ(b.Run(Bytes(file), random_b, decoder_b, out_b.data()), "");
    ASSERT_EQ(out_a, out_b);
    ASSERT_NE(out_a, before);
    before = out_a;
  }
}

// Decoding only what is needed changes nothing; reduced decoding changes little.
TEST(Transform, PartialDecodingIsExactAndScaledDecodingClose) {
  const std::string file = WriteJpeg(MakePicture(700, 500));
  Image whole;
  Decoder decoder;
  ASSERT_EQ(decoder.Decode(Bytes(file), {}, whole), "");
  for (bool train : {true, false}) {
    TransformOptions options = Plain(24);  // small: the filter reaches far beyond the window
    options.eval_resize = 36;
    options.interpolation = train ? Interpolation::kBilinear : Interpolation::kBicubic;
    options.train = train;
    options.flip = 0.5;
    TransformOptions unscaled = options;
    unscaled.scaled_decoding = false;
    Transform on(options), off(unscaled);
    std::vector<float> a(on.output_floats()), b(a.size()), c(a.size());
    for (uint64_t sample = 0; sample < 30; ++sample) {
      RandomStream random_a = Stream(sample), random_b = Stream(sample), random_c = Stream(sample);
      ASSERT_EQ(on.Run(Bytes(file), random_a, decoder, a.data()), "");
      ASSERT_EQ(off.Run(Bytes(file), random_b, decoder, b.data()), "");
      off.Apply(whole, random_c, c.data());
      ASSERT_EQ(b, c);
      double sum = 0;
      for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
      EXPECT_LT(sum / static_cast<double>(a.size()), 0.02);
    }
  }
}

TEST(Transform, OddShapesWork) {
  for (const auto& [w, h] : {std::pair(1, 1), {1, 900}, {900, 1}, {3, 2}, {17, 1000}}) {
    const Image image = MakePicture(w, h);
    for (const std::string& file : {WriteJpeg(image), WritePng(image)}) {
      for (bool train : {true, false}) {
        for (int pad : {-1, 4}) {
          TransformOptions options = Plain(32);
          options.train = train;
          options.pad_crop = pad;
          Transform transform(options);
          Decoder decoder;
          std::vector<float> out(transform.output_floats());
          RandomStream random = Stream(w);
          EXPECT_EQ(transform.Run(Bytes(file), random, decoder, out.data()), "");
          for (float value : out) ASSERT_TRUE(value >= 0 && value <= 1);
        }
      }
    }
  }
}

TEST(Transform, RandomResizedCropCoversItsRange) {
  // A ramp tells where the crop was: first and last output column give its sides.
  Image ramp;
  ramp.Resize(256, 256);
  for (int y = 0; y < 256; ++y) {
    for (int x = 0; x < 256; ++x) {
      ramp.row(y)[3 * x] = static_cast<uint8_t>(x);
      ramp.row(y)[3 * x + 1] = ramp.row(y)[3 * x + 2] = static_cast<uint8_t>(y);
    }
  }
  TransformOptions options = Plain(64);
  options.train = true;
  double smallest = 1, largest = 0, sum = 0;
  const int n = 500;
  for (int sample = 0; sample < n; ++sample) {
    const std::vector<float> out = Apply(options, ramp, sample);
    const double w = (out[3 * 63] - out[0]) * 64 / 63,
                 h = (out[3 * 64 * 63 + 1] - out[1]) * 64 / 63;
    smallest = std::min(smallest, w * h);
    largest = std::max(largest, w * h);
    sum += w * h;
    EXPECT_GT(w / h, 0.70);
    EXPECT_LT(w / h, 1.42);
  }
  EXPECT_LT(smallest, 0.12);
  EXPECT_GT(smallest, 0.06);
  EXPECT_GT(largest, 0.9);
  EXPECT_NEAR(sum / n, 0.51, 0.06);  // 0.54, less the crops that do not fit
}

TEST(Transform, ErasingZerosOneRectangle) {
  Image image = MakePicture(32, 32);
  for (uint8_t& byte : image.pixels) byte = 200;
  TransformOptions options = Plain(32);
  options.train = true;
  options.pad_crop = 0;
  options.erasing = 1;
  for (uint64_t sample = 0; sample < 50; ++sample) {
    const std::vector<float> out = Apply(options, image, sample);
    int left = 32, right = -1, top = 32, bottom = -1, count = 0;
    for (int i = 0; i < 32 * 32; ++i) {
      if (out[3 * i] != 0) continue;
      ++count;
      left = std::min(left, i % 32);
      right = std::max(right, i % 32);
      top = std::min(top, i / 32);
      bottom = std::max(bottom, i / 32);
    }
    EXPECT_EQ(count, (right - left + 1) * (bottom - top + 1));
    EXPECT_GT(count, 0.01 * 32 * 32);
    EXPECT_LT(count, 0.37 * 32 * 32);
  }
}

TEST(Transform, BrokenFilesSaySo) {
  const std::string file = WriteJpeg(MakePicture(64, 64));
  Transform transform{TransformOptions{}};
  Decoder decoder;
  std::vector<float> out(transform.output_floats());
  RandomStream random = Stream(0);
  EXPECT_NE(transform.Run(Bytes(file.substr(0, file.size() / 2)), random, decoder, out.data()), "");
  EXPECT_NE(transform.Run(Bytes(""), random, decoder, out.data()), "");
  EXPECT_EQ(transform.Run(Bytes(file), random, decoder, out.data()), "");
}

TEST(Transform, OptionsAreChecked) {
  TransformOptions options;
  options.eval_resize = 100;  // smaller than the image
  EXPECT_THROW(CheckTransformOptions(options), UsageError);
  options = {};
  options.hue = 0.7;
  EXPECT_THROW(Transform{options}, UsageError);
  EXPECT_THROW(ParseNormalization("0.5,0.5,0.5/1,1,0"), UsageError);
  EXPECT_THROW(ParseNormalization("imagenett"), UsageError);
  EXPECT_THROW(ParseNormalization("0.5,0.5,0.5/1,1,1,1"), UsageError);
  EXPECT_EQ(ParseNormalization("0.5,0.25,0.5/1,2,1").std[1], 2.0f);
}

// A crop that needs nothing of what is missing must say the same as any other.
TEST(Transform, ACutFileIsBrokenForEveryCrop) {
  const std::string file = WriteJpeg(MakePicture(200, 800));
  const std::string cut = file.substr(0, file.size() - 300);
  TransformOptions options;
  options.train = true;
  options.max_area = 0.1;
  Transform transform(options);
  Decoder decoder;
  std::vector<float> out(transform.output_floats());
  for (uint64_t sample = 0; sample < 20; ++sample) {
    RandomStream random = Stream(sample);
    EXPECT_NE(transform.Run(Bytes(cut), random, decoder, out.data()), "");
  }
}

// The same colour jitter in double precision, through HSV as Foley et al. give it.
TEST(Jitter, HueMatchesANaiveReference) {
  const Image image = MakePicture(40, 40);
  for (double turns : {-0.5, -0.2, 0.1, 1.0 / 3, 0.5}) {
    Image shifted = image;
    Jitter jitter;
    jitter.hue = turns;
    ApplyJitter(jitter, shifted.pixels.data(), 1600);
    for (int i = 0; i < 1600; ++i) {
      const uint8_t* p = &image.pixels[3 * i];
      const double r = p[0], g = p[1], b = p[2];
      const double v = std::max({r, g, b}), d = v - std::min({r, g, b});
      double h = 0;
      if (d > 0) h = v == r ? (g - b) / d : v == g ? 2 + (b - r) / d : 4 + (r - g) / d;
      h = std::fmod(h / 6 + turns + 2, 1.0) * 6;
      const int sector = static_cast<int>(h) % 6;
      const double f = h - std::floor(h), low = v - d, down = v - d * f, up = v - d * (1 - f);
      const double table[6][3] = {{v, up, low},   {down, v, low}, {low, v, up},
                                  {low, down, v}, {up, low, v},   {v, low, down}};
      for (int c = 0; c < 3; ++c) {
        ASSERT_NEAR(shifted.pixels[3 * i + c], table[sector][c], 0.51 + 1e-3);
      }
    }
  }
}

TEST(Jitter, DrawsStayInRangeAndInRandomOrder) {
  TransformOptions options;
  options.brightness = 0.4;
  options.hue = 0.1;
  std::set<std::array<int, 4>> orders;
  for (uint64_t sample = 0; sample < 500; ++sample) {
    RandomStream random = Stream(sample);
    const Jitter jitter = DrawJitter(options, random);
    EXPECT_TRUE(jitter.brightness >= 0.6 && jitter.brightness <= 1.4);
    EXPECT_TRUE(jitter.hue >= -0.1 && jitter.hue <= 0.1);
    EXPECT_EQ(jitter.contrast, 1.0);
    orders.insert(jitter.order);
  }
  EXPECT_EQ(orders.size(), 24u);
}

}  // namespace
}  // namespace parax
