#include "parax/data/image.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "image_writer.h"
#include "parax/base/file.h"
#include "parax/base/philox.h"

namespace parax {
namespace {

using Pixel = std::array<int, 3>;

Pixel At(const Image& image, int x, int y) {
  const uint8_t* p = image.row(y) + 3 * x;
  return {p[0], p[1], p[2]};
}

Image MustDecode(const std::string& file) {
  Decoder decoder;
  Image image;
  const std::string why = decoder.Decode(Bytes(file), {}, image);
  if (!why.empty()) throw std::runtime_error(why);
  return image;
}

std::string WhyNot(const std::string& file) {
  Decoder decoder;
  Image image;
  return decoder.Decode(Bytes(file), {}, image);
}

TEST(Image, TypeIsFoundByContent) {
  EXPECT_EQ(TypeOf(Bytes(WriteJpeg(MakePicture(8, 8)))), ImageType::kJpeg);
  EXPECT_EQ(TypeOf(Bytes(WritePng(MakePicture(8, 8)))), ImageType::kPng);
  EXPECT_EQ(WhyNot(""), "empty file");
  EXPECT_EQ(WhyNot("just some text"), "content is neither JPEG nor PNG");
  EXPECT_NE(WhyNot("GIF89a....").find("GIF"), std::string::npos);
}

TEST(Image, ProbeReadsTheHeader) {
  const ImageInfo jpeg = ProbeImage(Bytes(WriteJpeg(MakePicture(31, 17))));
  EXPECT_EQ(jpeg.error, "");
  EXPECT_EQ(jpeg.type, ImageType::kJpeg);
  EXPECT_EQ(jpeg.width, 31);
  EXPECT_EQ(jpeg.height, 17);
  const ImageInfo png = ProbeImage(Bytes(WritePng(MakePicture(5, 9))));
  EXPECT_EQ(png.type, ImageType::kPng);
  EXPECT_EQ(png.width, 5);
  EXPECT_EQ(png.height, 9);
}

TEST(Image, PngIsExact) {
  const Image picture = MakePicture(61, 47);
  for (bool interlaced : {false, true}) {
    const Image back = MustDecode(WritePng(picture, {.interlaced = interlaced}));
    ASSERT_EQ(back.width, 61);
    ASSERT_EQ(back.height, 47);
    EXPECT_EQ(MaxDifference(picture.pixels.data(), back.pixels.data(), 61 * 47 * 3), 0);
  }
}

TEST(Image, SixteenBitPngKeepsTheUpperByte) {
  const uint8_t gray[4] = {0x12, 0xff, 0xab, 0x00};
  const Image g = MustDecode(WritePng(gray, 4, 2, 1, {.type = PNG_COLOR_TYPE_GRAY, .bits = 16}));
  EXPECT_EQ(At(g, 0, 0), (Pixel{0x12, 0x12, 0x12}));
  EXPECT_EQ(At(g, 1, 0), (Pixel{0xab, 0xab, 0xab}));
  const uint8_t rgb[6] = {1, 255, 2, 0, 3, 128};
  EXPECT_EQ(At(MustDecode(WritePng(rgb, 6, 1, 1, {.bits = 16})), 0, 0), (Pixel{1, 2, 3}));
}

TEST(Image, PngPaletteGrayBitsAndAlpha) {
  PngOptions palette{.type = PNG_COLOR_TYPE_PALETTE,
                     .bits = 4,
                     .palette = {{9, 8, 7}, {200, 100, 50}, {0, 0, 255}},
                     .transparency = {0, 128}};
  const uint8_t packed[2] = {0x01, 0x20};  // indices 0 1 2
  const Image p = MustDecode(WritePng(packed, 2, 3, 1, palette));
  EXPECT_EQ(At(p, 0, 0), (Pixel{9, 8, 7}));  // transparency is dropped, not blended
  EXPECT_EQ(At(p, 1, 0), (Pixel{200, 100, 50}));
  EXPECT_EQ(At(p, 2, 0), (Pixel{0, 0, 255}));

  const uint8_t bit[1] = {0x40};
  const Image b = MustDecode(WritePng(bit, 1, 2, 1, {.type = PNG_COLOR_TYPE_GRAY, .bits = 1}));
  EXPECT_EQ(At(b, 0, 0), (Pixel{0, 0, 0}));
  EXPECT_EQ(At(b, 1, 0), (Pixel{255, 255, 255}));

  const uint8_t rgba[4] = {10, 20, 30, 0};
  EXPECT_EQ(At(MustDecode(WritePng(rgba, 4, 1, 1, {.type = PNG_COLOR_TYPE_RGB_ALPHA})), 0, 0),
            (Pixel{10, 20, 30}));
  const uint8_t gray_alpha[2] = {77, 3};
  EXPECT_EQ(
      At(MustDecode(WritePng(gray_alpha, 2, 1, 1, {.type = PNG_COLOR_TYPE_GRAY_ALPHA})), 0, 0),
      (Pixel{77, 77, 77}));
}

TEST(Image, JpegKindsComeCloseToThePicture) {
  const Image picture = MakePicture(67, 45);
  for (const JpegOptions& options :
       {JpegOptions{.quality = 98, .h = 1, .v = 1}, JpegOptions{.quality = 98, .progressive = true},
        JpegOptions{.quality = 98, .h = 1, .v = 1, .stored = JCS_RGB},
        JpegOptions{.quality = 98, .restart = 1}}) {
    const Image back = MustDecode(WriteJpeg(picture, options));
    ASSERT_EQ(back.width, 67);
    ASSERT_EQ(back.height, 45);
    double sum = 0;
    for (int i = 0; i < 67 * 45 * 3; ++i) sum += std::abs(picture.pixels[i] - back.pixels[i]);
    EXPECT_LT(sum / (67 * 45 * 3), 3.0);
  }
}

TEST(Image, GrayJpegGivesThreeEqualChannels) {
  const std::vector<uint8_t> gray(16 * 16, 90);
  const Image back = MustDecode(WriteJpeg(
      gray.data(), 16, 16, {.h = 1, .v = 1, .in = JCS_GRAYSCALE, .stored = JCS_GRAYSCALE}));
  EXPECT_EQ(At(back, 7, 7), (Pixel{90, 90, 90}));
}

TEST(Image, CmykAndYcckAreAdobesInverted) {
  // Stored 255 - ink: no cyan, half magenta, full yellow, no black.
  std::vector<uint8_t> stored;
  for (int i = 0; i < 16 * 16; ++i) stored.insert(stored.end(), {255, 128, 0, 255});
  for (J_COLOR_SPACE space : {JCS_CMYK, JCS_YCCK}) {
    const Image back = MustDecode(WriteJpeg(
        stored.data(), 16, 16, {.quality = 100, .h = 1, .v = 1, .in = JCS_CMYK, .stored = space}));
    const Pixel p = At(back, 8, 8);
    EXPECT_NEAR(p[0], 255, 2);
    EXPECT_NEAR(p[1], 128, 2);
    EXPECT_NEAR(p[2], 0, 2);
  }
}

// What PIL made of the same files (make_golden.py).
TEST(ImageGolden, DecodesAsPil) {
  const std::string folder = std::string(PARAX_SOURCE_DIR) + "/tests/data/golden/";
  const auto index = nlohmann::json::parse(std::ifstream(folder + "index.json"));
  ASSERT_EQ(index["decode"].size(), 4u);
  for (const std::string name : index["decode"]) {
    const Image ours = MustDecode(ReadFile(folder + name + ".jpg"));
    const Image pil = MustDecode(ReadFile(folder + name + ".png"));
    ASSERT_EQ(ours.width, pil.width);
    EXPECT_LE(MaxDifference(ours.pixels.data(), pil.pixels.data(), 3 * pil.width * pil.height), 1)
        << name;
  }
}

TEST(Image, EveryTruncationIsReportedAndTheDecoderGoesOn) {
  const Image picture = MakePicture(40, 33);
  const std::string good = WriteJpeg(picture);
  for (const std::string& file : {good, WriteJpeg(picture, {.progressive = true}),
                                  WritePng(picture), WritePng(picture, {.interlaced = true})}) {
    Decoder decoder;
    Image image;
    // PNG's checksum and end chunk follow the pixels; without them nothing is lost.
    const size_t needed =
        TypeOf(Bytes(file)) == ImageType::kPng ? file.size() - 20 : file.size() - 2;
    for (size_t size = 0; size < needed; ++size) {
      const std::string cut = file.substr(0, size);
      const std::string why = decoder.Decode(Bytes(cut), {}, image);
      EXPECT_NE(why, "") << size << " of " << file.size();
      EXPECT_EQ(why.find('\n'), std::string::npos);
      if (size % 64 == 0) {
        EXPECT_EQ(decoder.Decode(Bytes(good), {}, image), "");
      }
    }
    EXPECT_EQ(decoder.Verify(Bytes(file)), "");
    EXPECT_NE(decoder.Verify(Bytes(file.substr(0, file.size() / 2))), "");
  }
}

TEST(Image, MissingDataIsReportedAlsoWhenTheEndMarkerIsThere) {
  const std::string file = WriteJpeg(MakePicture(40, 33));
  EXPECT_NE(WhyNot(file.substr(0, file.size() - 200) + "\xff\xd9"), "");
  EXPECT_EQ(WhyNot(file + "bytes behind the end"), "");
}

TEST(Image, NothingIsKeptFromTheFileBefore) {
  const std::string good = WriteJpeg(MakePicture(40, 33));
  std::string lacking = good;  // its first quantisation table becomes a comment
  lacking[lacking.find("\xff\xdb") + 1] = '\xfe';
  Decoder decoder;
  Image image;
  EXPECT_EQ(decoder.Decode(Bytes(good), {}, image), "");
  EXPECT_NE(decoder.Decode(Bytes(lacking), {}, image), "");
}

TEST(Image, ReadNeedsAnOpenFile) {
  Decoder decoder;
  Image image;
  EXPECT_NE(decoder.Read({}, image), "");
  const std::string file = WritePng(MakePicture(4, 4));
  EXPECT_EQ(decoder.Decode(Bytes(file), {}, image), "");
  EXPECT_NE(decoder.Read({}, image), "");
}

TEST(Image, HugeClaimsAreRefused) {
  Decoder small(100);
  Image image;
  EXPECT_NE(small.Decode(Bytes(WritePng(MakePicture(11, 10))), {}, image), "");
  EXPECT_EQ(small.Decode(Bytes(WritePng(MakePicture(10, 10))), {}, image), "");
  std::string jpeg = WriteJpeg(MakePicture(16, 16));
  const size_t frame = jpeg.find("\xff\xc0");  // marker, length, precision, height, width
  for (int i = 5; i < 9; ++i) jpeg[frame + i] = '\xf0';
  EXPECT_EQ(ProbeImage(Bytes(jpeg)).width, 0xf0f0);
  EXPECT_NE(WhyNot(jpeg).find("more than"), std::string::npos) << WhyNot(jpeg);
}

// The region's pixels must be those of a full decode, whatever the sampling and reduction.
TEST(Image, RegionsEqualTheFullDecode) {
  const Image picture = MakePicture(333, 251);
  RandomStream random(1, RandomUse::kTest);
  std::vector<std::string> files;
  for (const auto& [h, v] : {std::pair(1, 1), {2, 1}, {2, 2}, {1, 2}, {4, 1}}) {
    files.push_back(WriteJpeg(picture, {.h = h, .v = v}));
    files.push_back(WriteJpeg(picture, {.h = h, .v = v, .progressive = true}));
  }
  files.push_back(WriteJpeg(picture.pixels.data(), 333, 83,
                            {.h = 1, .v = 1, .in = JCS_GRAYSCALE, .stored = JCS_GRAYSCALE}));
  files.push_back(WritePng(picture));
  Decoder decoder;
  for (size_t f = 0; f < files.size(); ++f) {
    for (int reduction : {1, 2, 4, 8}) {
      Image full, part;
      ASSERT_EQ(decoder.Decode(Bytes(files[f]), {.max_reduction = reduction}, full), "");
      for (int round = 0; round < 40; ++round) {
        DecodeHint hint{.max_reduction = reduction};
        hint.left = static_cast<int>(random.Below(full.full_width));
        hint.top = static_cast<int>(random.Below(full.full_height));
        hint.width = 1 + static_cast<int>(random.Below(full.full_width - hint.left));
        hint.height = 1 + static_cast<int>(random.Below(full.full_height - hint.top));
        ASSERT_EQ(decoder.Decode(Bytes(files[f]), hint, part), "");
        ASSERT_EQ(part.full_width, full.full_width);
        ASSERT_EQ(part.eighths, full.eighths);
        const int x0 = hint.left * part.eighths / 8, y0 = hint.top * part.eighths / 8;
        const int x1 = ((hint.left + hint.width) * part.eighths + 7) / 8;
        const int y1 = ((hint.top + hint.height) * part.eighths + 7) / 8;
        ASSERT_LE(part.left, x0);
        ASSERT_LE(part.top, y0);
        ASSERT_GE(part.left + part.width, x1);
        ASSERT_GE(part.top + part.height, y1);
        for (int y = y0; y < y1; ++y) {
          ASSERT_EQ(MaxDifference(full.row(y) + 3 * x0,
                                  part.row(y - part.top) + 3 * (x0 - part.left), 3 * (x1 - x0)),
                    0)
              << "file " << f << " 1/" << reduction << " row " << y << " of " << hint.left << ","
              << hint.top << " " << hint.width << "x" << hint.height;
        }
      }
    }
  }
}

TEST(Image, RegionsReadLess) {
  const std::string file = WriteJpeg(MakePicture(320, 320));
  Decoder decoder;
  Image part;
  ASSERT_EQ(decoder.Decode(Bytes(file), {.left = 100, .top = 90, .width = 50, .height = 60}, part),
            "");
  EXPECT_LT(part.width, 120);
  EXPECT_LT(part.height, 90);
}

}  // namespace
}  // namespace parax
