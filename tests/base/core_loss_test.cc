#include "parax/base/core_loss.h"

#include <gtest/gtest.h>
#include <immintrin.h>
#include <sched.h>
#include <unistd.h>

#include <thread>

namespace parax {
namespace {

bool KernelTells() { return access("/proc/thread-self/schedstat", R_OK) == 0; }

void Bind(int pu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(pu), &set);
  EXPECT_EQ(sched_setaffinity(0, sizeof set, &set), 0);
}

// While it lives, another thread wants the CPU that the calling one is on, and is bound to.
class Rival {
 public:
  Rival() {
    const int pu = sched_getcpu();
    Bind(pu);
    thread_ = std::jthread([pu](const std::stop_token& stop) {
      Bind(pu);
      while (!stop.stop_requested()) _mm_pause();
    });
  }

 private:
  std::jthread thread_;
};

double LossWhile(auto&& work, std::chrono::nanoseconds period = std::chrono::nanoseconds(0)) {
  double part = -1;
  std::thread([&] {
    CoreLoss loss(period);
    loss.Begin();
    const Clock::time_point begin = Clock::now();
    while (SecondsSince(begin) < 0.2) work();
    part = loss.Part();
  }).join();
  return part;
}

TEST(CoreLoss, IsTheTimeThatAnotherThreadHadTheCore) {
  if (!KernelTells()) GTEST_SKIP() << "this kernel does not tell what time a thread lost";
  double part = 0;
  std::thread([&] {
    const Rival rival;
    part = LossWhile([] { _mm_pause(); });
  }).join();
  EXPECT_GT(part, 0.1);
  EXPECT_LE(part, 1);
}

TEST(CoreLoss, WaitingIsNoLoss) {
  EXPECT_LT(LossWhile([] { std::this_thread::sleep_for(std::chrono::milliseconds(200)); }), 0.1);
}

TEST(CoreLoss, LooksOnceAPeriod) {
  double part = -1;
  std::thread([&] {
    const Rival rival;
    part = LossWhile([] { _mm_pause(); }, std::chrono::hours(1));
  }).join();
  EXPECT_EQ(part, 0);
}

TEST(CoreLoss, IsNoneBeforeItBegan) { EXPECT_EQ(CoreLoss().Part(), 0); }

}  // namespace
}  // namespace parax
