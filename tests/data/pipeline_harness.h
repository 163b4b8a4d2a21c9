#pragma once
// Folders of small images, and all that an input pipeline gives of them.

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <png.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "image_folder.h"
#include "parax/data/pipeline.h"
#include "taken.h"

namespace parax {

// An image whose every pixel is `value`, but for a ramp along the rows when `ramp`.
inline std::string Png(int value, bool ramp) {
  std::vector<unsigned char> pixels(12 * 12 * 3);
  for (size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<unsigned char>(value + (ramp ? static_cast<int>(i % 36) * 3 : 0));
  }
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = image.height = 12;
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&image, nullptr, &size, 0, pixels.data(), 0, nullptr);
  std::string file(size, '\0');
  png_image_write_to_memory(&image, file.data(), &size, 0, pixels.data(), 0, nullptr);
  file.resize(size);
  return file;
}

// Three classes; image i of the split has gray value i.
struct Images {
  explicit Images(int per_class, bool ramp = false) {
    for (int i = 0; i < 3 * per_class; ++i) {
      folder.Write(fmt::format("train/class{}/{:03}.png", i / per_class, i), Png(i, ramp));
    }
    Open();
  }
  void Open() { data = OpenDataset(folder.path(), {.val_split = 0.0, .keep_index = false}); }
  // Passes the look at indexing and fails when it is decoded.
  void Break(int64_t i) {
    const std::string path = data.train.Path(i).substr(folder.path().string().size() + 1);
    std::string file = Png(static_cast<int>(i), true);
    for (size_t k = file.size() / 2 - 8; k < file.size() / 2 + 8; ++k) file[k] = 'x';
    folder.Write(path, file);
  }

  TemporaryFolder folder;
  Dataset data;
};

inline PipelineOptions Plain(int64_t samples) {
  PipelineOptions options;
  options.plan = {.samples = samples, .batch = 8, .leaves = 2, .micro_batch = 3};
  options.seed = 5;
  options.transform.image_size = kSize;
  options.transform.eval_resize = 0;
  options.transform.normalization = ParseNormalization("none");
  return options;
}

inline PipelineOptions Augmented(int64_t samples) {
  PipelineOptions options = Plain(samples);
  options.transform.train = true;
  options.mix = {.mixup = 0.4, .cutmix = 1.0};
  options.classes = 3;
  return options;
}

// What each leaf gets over the whole run, leaves taking turns.
inline std::vector<std::vector<Taken>> TakeAll(InputSource& source,
                                               const PipelineOptions& options) {
  std::vector<std::vector<Taken>> all(static_cast<size_t>(options.plan.leaves));
  const int64_t per_epoch = options.plan.IterationsPerEpoch();
  for (int64_t it = options.first_iteration; it < options.epochs * per_epoch; ++it) {
    for (int leaf = 0; leaf < options.plan.leaves; ++leaf) {
      for (int m = 0; m < options.plan.MicroBatches(it % per_epoch, leaf); ++m) {
        all[static_cast<size_t>(leaf)].push_back(Take(source, leaf, it));
      }
    }
  }
  for (int leaf = 0; leaf < options.plan.leaves; ++leaf) {
    EXPECT_TRUE(Take(source, leaf).ids.empty()) << "nothing comes behind the end";
  }
  return all;
}

inline std::vector<std::vector<Taken>> RunAll(const Images& images,
                                              const PipelineOptions& options) {
  StopFlag stop;
  const auto source = MakeImagePipeline(images.data.train, options, stop);
  return TakeAll(*source, options);
}

// Returns what the whole run takes.
inline std::vector<std::vector<Taken>> ExpectResumable(const Images& images,
                                                       PipelineOptions options,
                                                       const std::vector<int64_t>& from) {
  const auto whole = RunAll(images, options);
  for (const int64_t first : from) {
    options.first_iteration = first;
    const auto rest = RunAll(images, options);
    for (size_t leaf = 0; leaf < whole.size(); ++leaf) {
      std::vector<Taken> expected;
      std::copy_if(whole[leaf].begin(), whole[leaf].end(), std::back_inserter(expected),
                   [&](const Taken& taken) { return taken.iteration >= first; });
      EXPECT_EQ(rest[leaf], expected) << "from iteration " << first;
    }
  }
  return whole;
}

}  // namespace parax
