#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "image_folder.h"
#include "image_writer.h"
#include "parax/base/error.h"
#include "parax/data/dataset.h"
#include "parax/data/pipeline.h"

namespace {
thread_local int64_t allocations = 0;
}

// Counts what this thread allocates; the other forms of new end up here. Not inlined: the compiler
// would take free() for the wrong partner of new.
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
// Not left to the other: AddressSanitizer brings its own, whose memory free() may not take.
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace parax {
namespace {

std::string Jpeg(const JpegOptions& options) {
  const Image picture = MakePicture(64, 48);
  // CMYK takes four bytes a pixel: fewer rows of the same memory.
  return WriteJpeg(picture.pixels.data(), 64, options.in == JCS_CMYK ? 36 : 48, options);
}

PipelineOptions Options(const Split& split) {
  PipelineOptions options;
  options.plan = {.samples = split.size(), .batch = 4, .leaves = 1, .micro_batch = 2};
  options.shuffle = false;
  options.transform.image_size = 32;
  options.transform.eval_resize = 0;
  return options;
}

// Case L.
TEST(RealFolderTest, LoadsWhatIsSoundAndNamesTheRest) {
  const TemporaryFolder folder;
  const std::string plain = Jpeg({});
  folder.Write("train/a/gray.jpg", Jpeg({.in = JCS_GRAYSCALE, .stored = JCS_GRAYSCALE}));
  folder.Write("train/a/cmyk.jpg", Jpeg({.in = JCS_CMYK, .stored = JCS_CMYK}));
  folder.Write("train/a/progressive.jpg", Jpeg({.progressive = true}));
  folder.Write("train/a/Blüte – 花.JPG", plain);
  const std::vector<uint8_t> deep(40 * 40 * 6, 77);
  folder.Write("train/a/sixteen.png", WritePng(deep.data(), 40 * 6, 40, 40, {.bits = 16}));
  folder.Write("train/a/half.jpg", plain.substr(0, plain.size() / 2));
  folder.Write("train/a/empty.jpg", "");
  folder.Write("train/a/text.jpg", "not a picture");

  DatasetOptions options{.val_split = 0.0, .keep_index = false};
  const Dataset data = OpenDataset(folder.path(), options);
  ASSERT_EQ(data.train.size(), 5);
  std::vector<std::string> broken;
  for (const BrokenFile& file : data.broken) {
    broken.push_back(std::filesystem::path(file.path).filename());
  }
  EXPECT_EQ(broken, (std::vector<std::string>{"empty.jpg", "half.jpg", "text.jpg"}));
  options.strict = true;
  EXPECT_THROW(OpenDataset(folder.path(), options), Error);

  StopFlag stop;
  const auto source = MakeImagePipeline(data.train, Options(data.train), stop);
  int64_t next = 0;
  for (MicroBatch batch; source->Acquire(0, batch) == Outcome::kOk && batch.count > 0;) {
    for (int64_t i = 0; i < batch.count; ++i) EXPECT_EQ(batch.sample_ids[i], next++);
    source->Release(0);
  }
  EXPECT_EQ(next, 5) << source->ErrorLine();
}

TEST(RealFolderTest, LeavesAllocateNothing) {
  const TemporaryFolder folder;
  for (int i = 0; i < 8; ++i) {
    folder.Write("train/a/" + std::to_string(i) + ".jpg", Jpeg({.quality = 60 + i}));
  }
  const Dataset data = OpenDataset(folder.path(), {.val_split = 0.0, .keep_index = false});
  PipelineOptions options = Options(data.train);
  options.epochs = 20;
  StopFlag stop;
  const auto source = MakeImagePipeline(data.train, options, stop);
  const int64_t before = allocations;
  int taken = 0;
  for (MicroBatch batch; source->Acquire(0, batch) == Outcome::kOk && batch.count > 0; ++taken) {
    source->Release(0);
  }
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(taken, 80);
  ::operator delete(::operator new(1));
  EXPECT_EQ(allocations, before + 1);  // it does count
}

}  // namespace
}  // namespace parax
