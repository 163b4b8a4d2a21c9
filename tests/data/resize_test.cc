#include "parax/data/resize.h"

#include <gtest/gtest.h>

#include "golden_images.h"
#include "image_writer.h"
#include "parax/data/resize_internal.h"

namespace parax {
namespace {

TEST(ResizeGolden, WithinTwoOfPil) {
  const Image source = Load("source.png");
  const auto index = GoldenIndex();
  ASSERT_EQ(index["resize"].size(), 12u);
  for (const auto& entry : index["resize"]) {
    const Image expected = Load(entry["file"]);
    ResizeJob job;
    job.x0 = entry["box"][0];
    job.y0 = entry["box"][1];
    job.x1 = entry["box"][2];
    job.y1 = entry["box"][3];
    job.width = job.window_width = entry["size"][0];
    job.height = job.window_height = entry["size"][1];
    if (entry["filter"] == "bicubic") job.interpolation = Interpolation::kBicubic;
    std::vector<uint8_t> out(3 * job.width * job.height);
    Resizer().Run(source, job, out.data());
    EXPECT_LE(MaxDifference(out.data(), expected.pixels.data(), out.size()), 2) << entry;
  }
}

TEST(Resize, EveryInstructionSetGivesTheSameBits) {
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "this CPU has no AVX2";
  const Image source = MakePicture(131, 77);
  for (auto filter : {Interpolation::kBilinear, Interpolation::kBicubic}) {
    for (int size : {1, 5, 31, 64, 130, 200, 333}) {
      Resizer::Taps taps;
      MakeTaps(3.5, 128.25, source.width, size, -2, size + 5, true, filter, taps);
      const int outputs = size + 5, stride = 3 * outputs + kKernelRoom;
      for (int rows : {1, 2, 77}) {
        std::vector<uint8_t> a(stride * rows), b(stride * rows);
        kPortableKernels.columns(source.row(0), 3 * 131, rows, taps, a.data(), stride);
        kAvx2Kernels.columns(source.row(0), 3 * 131, rows, taps, b.data(), stride);
        for (int y = 0; y < rows; ++y) {
          ASSERT_EQ(MaxDifference(&a[stride * y], &b[stride * y], 3 * outputs), 0) << size;
        }
      }
      for (int bytes : {3, 33, 96, 393}) {
        std::vector<uint8_t> a(bytes), b(bytes);
        const int count = std::min(taps.count, 76);
        kPortableKernels.row(source.row(0), 393, taps.weights.data(), count, taps.shift, bytes,
                             a.data());
        kAvx2Kernels.row(source.row(0), 393, taps.weights.data(), count, taps.shift, bytes,
                         b.data());
        ASSERT_EQ(a, b);
      }
    }
  }
  const float scale[3] = {0.017f, 0.0173f, 0.0171f}, shift[3] = {-2.1f, -2.03f, -1.8f};
  std::vector<float> a(3 * 131), b(3 * 131);
  kPortableKernels.normalize(source.row(0), 3 * 131, scale, shift, a.data());
  kAvx2Kernels.normalize(source.row(0), 3 * 131, scale, shift, b.data());
  EXPECT_EQ(a, b);
}

// Kernels read all taps, those of weight zero too.
TEST(Resize, TapsStayInsideTheImage) {
  for (auto filter : {Interpolation::kBilinear, Interpolation::kBicubic}) {
    for (int source : {1, 2, 3, 10, 97, 500}) {
      for (int size : {1, 2, 7, 33, 97, 200}) {
        for (int offset : {-3, 0, size - 1}) {
          for (int window : {1, 5, size + 6}) {
            Resizer::Taps taps;
            MakeTaps(0, source, source, size, offset, window, false, filter, taps);
            ASSERT_GE(taps.begin, 0);
            ASSERT_LE(taps.end, source);
            for (int i = 0; i < window; ++i) {
              ASSERT_GE(taps.first[i], 0);
              ASSERT_LE(taps.first[i] + taps.count, source + 1);  // + 1: the count is even
              int sum = 0;
              for (int k = 0; k < taps.count; ++k) sum += taps.weights[i * taps.count + k];
              const bool padding = offset + i < 0 || offset + i >= size;
              ASSERT_NEAR(sum, padding ? 0 : 1 << taps.shift, taps.count);
            }
          }
        }
      }
    }
  }
}

TEST(Resize, AWindowIsAPartOfTheWhole) {
  const Image source = MakePicture(90, 61);
  ResizeJob whole{.x0 = 0, .y0 = 0, .x1 = 90, .y1 = 61, .width = 41, .height = 37};
  whole.window_width = 41;
  whole.window_height = 37;
  std::vector<uint8_t> all(3 * 41 * 37);
  Resizer resizer;
  resizer.Run(source, whole, all.data());
  ResizeJob part = whole;
  part.left = -4;
  part.top = 30;
  part.window_width = 20;
  part.window_height = 12;
  for (bool flip : {false, true}) {
    part.flip = flip;
    std::vector<uint8_t> window(3 * 20 * 12);
    resizer.Run(source, part, window.data());
    for (int y = 0; y < 12; ++y) {
      for (int x = 0; x < 20; ++x) {
        const int from_x = (flip ? 19 - x : x) - 4, from_y = y + 30;
        const bool inside = from_x >= 0 && from_y < 37;
        for (int c = 0; c < 3; ++c) {
          ASSERT_EQ(window[3 * (20 * y + x) + c], inside ? all[3 * (41 * from_y + from_x) + c] : 0);
        }
      }
    }
  }
}

TEST(Resize, FlatStaysFlat) {
  Image flat;
  flat.Resize(200, 150);
  std::fill(flat.pixels.begin(), flat.pixels.end(), 255);
  for (auto filter : {Interpolation::kBilinear, Interpolation::kBicubic}) {
    for (int size : {3, 50, 500}) {
      ResizeJob job{.x0 = 1.3, .y0 = 2.7, .x1 = 190.1, .y1 = 149.9, .width = size, .height = size};
      job.window_width = job.window_height = size;
      job.interpolation = filter;
      std::vector<uint8_t> out(3 * size * size);
      Resizer().Run(flat, job, out.data());
      EXPECT_EQ(*std::min_element(out.begin(), out.end()), 255);
    }
  }
}

}  // namespace
}  // namespace parax
