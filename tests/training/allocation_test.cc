// An iteration allocates nothing of ours; oneDNN's own small allocations are told apart by caller.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "parax/base/philox.h"
#include "parax/engine/weights.h"
#include "parax/models/resnet.h"
#include "tests/training/training_harness.h"

namespace {

struct Counts {
  std::atomic<int64_t> ours{0}, dnnl{0}, large{0};
};
Counts counts;
thread_local bool counting = false;

// Attributes an allocation to whoever called malloc or operator new.
void Count(size_t size, void* caller) {
  if (!counting) return;
  counting = false;  // dladdr may allocate
  Dl_info info{};
  const bool dnnl = dladdr(caller, &info) != 0 && info.dli_fname != nullptr &&
                    std::strstr(info.dli_fname, "libdnnl") != nullptr;
  (dnnl ? counts.dnnl : counts.ours).fetch_add(1);
  if (size >= 4096) counts.large.fetch_add(1);
  counting = true;
}

}  // namespace

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t size) {
  Count(size, __builtin_return_address(0));
  return __libc_malloc(size);
}
void* calloc(size_t n, size_t size) {
  Count(n * size, __builtin_return_address(0));
  return __libc_calloc(n, size);
}
void* realloc(void* old, size_t size) {
  Count(size, __builtin_return_address(0));
  return __libc_realloc(old, size);
}
int posix_memalign(void** out, size_t alignment, size_t size) {
  Count(size, __builtin_return_address(0));
  *out = __libc_memalign(alignment, size);
  return *out == nullptr ? 12 : 0;
}
void* aligned_alloc(size_t alignment, size_t size) {
  Count(size, __builtin_return_address(0));
  return __libc_memalign(alignment, size);
}
}

__attribute__((noinline)) void* operator new(size_t size) {
  Count(size, __builtin_return_address(0));
  if (void* p = __libc_malloc(size)) return p;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* p) noexcept { free(p); }
__attribute__((noinline)) void operator delete(void* p, size_t) noexcept { free(p); }

namespace parax::test {
namespace {

constexpr uint64_t kWarmUp = 3;

// Counts on the leaves' threads from some iteration on.
class CountingHook : public OpHook {
 public:
  Outcome Enter(int, uint64_t iteration, int) noexcept override {
    counting = iteration > kWarmUp;
    return Outcome::kOk;
  }
};

TEST(AllocationTest, CounterSeesAllocations) {
  counting = true;
  auto* p = new int(1);
  void* q = malloc(8192);
  counting = false;
  EXPECT_EQ(counts.ours.exchange(0), 2);
  EXPECT_EQ(counts.large.exchange(0), 1);
  free(q);
  delete p;
}

TEST(AllocationTest, AnIterationAllocatesNothingOfOurs) {
  const Graph graph = BuildModel({.name = "resnet20"});
  TrainerOptions options = GradientOptions(2, 32, 16, 4, 10);
  options.guards = false;
  options.learning_rate = [](uint64_t) { return 0.01; };
  options.clip_norm = 1;
  options.ema_decay = 0.99;
  CountingHook hook;
  options.hook = &hook;
  Trainer trainer(graph, options);
  trainer.Load(InitTensors(graph, 1));
  std::vector<float> images(32 * 3 * 32 * 32);
  RandomStream random(1, RandomUse::kTest);
  for (float& v : images) v = static_cast<float>(random.Normal());
  std::vector<int32_t> labels(32);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int32_t>(i % 10);
  FixedSource source(options.train, 3 * 32 * 32, images, labels);
  const TrainEnd end = trainer.Train(
      12, source, [](const StepReport&) {}, [] { return false; });
  ASSERT_EQ(end.outcome, Outcome::kOk) << end.reason;
  EXPECT_EQ(counts.ours.load(), 0);
  EXPECT_EQ(counts.large.load(), 0);
  EXPECT_GT(counts.dnnl.load(), 0) << "nothing was counted at all";
}

}  // namespace
}  // namespace parax::test
