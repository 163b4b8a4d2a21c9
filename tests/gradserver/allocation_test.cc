// Nothing in an iteration allocates. Counts every malloc of the program while a window is open.
#include <atomic>
#include <cstdlib>

#include "tests/gradserver/harness.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define PARAX_COUNTS_ALLOCATIONS 0
#else
#define PARAX_COUNTS_ALLOCATIONS 1
#endif

namespace {
std::atomic<int64_t> allocations{0};
}

#if PARAX_COUNTS_ALLOCATIONS
// glibc's own entry points; operator new ends in malloc.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t n) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(n);
}
void* calloc(size_t n, size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(n, size);
}
void* realloc(void* p, size_t n) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(p, n);
}
void* aligned_alloc(size_t alignment, size_t n) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, n);
}
}
#endif

namespace parax::testing {
namespace {

TEST(Allocation, NoneInAnIteration) {
  if (!PARAX_COUNTS_ALLOCATIONS) GTEST_SKIP() << "the sanitizer owns malloc";
  for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kLars}) {
    for (const UpdatePolicy policy : {UpdatePolicy::kEager, UpdatePolicy::kCommit}) {
      ServerOptions options = Options({5000, 33, 20'000}, 2, 2);
      options.optimizer.kind = kind;
      options.policy = policy;
      options.ema_decay = 0.9;
      options.moments = {{"bn", 70, 0.1}};
      StopFlag stop;
      GradientServer server(options, stop);
      std::atomic<int> ready{0}, done{0};
      std::atomic<bool> go{false}, leave{false};
      int64_t counted = -1;
      std::thread counter([&] {
        while (ready < 2) std::this_thread::yield();
        const int64_t before = allocations;
        go = true;
        while (done < 2) std::this_thread::yield();
        counted = allocations - before;
        leave = true;
      });
      const auto outcomes = RunLeaves(2, [&](int l) {
        ++ready;
        while (!go) std::this_thread::yield();
        Outcome outcome = Outcome::kOk;
        for (uint64_t t = 1; t <= 20 && outcome == Outcome::kOk; ++t) {
          outcome = server.BeginIteration(l, t, 0.1, 2);
          for (int b = server.buckets() - 1; b >= 0 && outcome == Outcome::kOk; --b) {
            outcome = server.AwaitBucket(l, b);
          }
          server.moment_mean(l, 0, 0)[0] = 1;
          server.SetMomentCount(l, 0, 0, 5);
          server.PublishMoments(l, 1);
          for (int b = 0; b < server.buckets() && outcome == Outcome::kOk; ++b) {
            outcome = server.Help(l);
            server.Publish(l, b);
          }
          if (outcome == Outcome::kOk) outcome = server.EndIteration(l);
        }
        if (outcome == Outcome::kOk) outcome = server.Drain(l);
        ++done;
        while (!leave) std::this_thread::yield();  // threads that end free and allocate
        return outcome;
      });
      counter.join();
      ExpectAllOk(outcomes, stop);
      EXPECT_EQ(counted, 0);
    }
  }
}

TEST(Allocation, TheCounterCounts) {
  if (!PARAX_COUNTS_ALLOCATIONS) GTEST_SKIP() << "the sanitizer owns malloc";
  const int64_t before = allocations;
  const std::vector<int> some(100);
  EXPECT_EQ(some[3], 0);
  EXPECT_GT(allocations, before);
}

}  // namespace
}  // namespace parax::testing
