#include "parax/base/sequence.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <immintrin.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace parax {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Sequence, AReachedValueNeedsNoWait) {
  Sequence sequence;
  StopFlag stop;
  stop.Request();  // not even looked at
  sequence.Publish(5);
  EXPECT_TRUE(sequence.reached(5));
  EXPECT_FALSE(sequence.reached(6));
  EXPECT_EQ(sequence.Wait(5, stop, milliseconds(0), {"value"}), Outcome::kOk);
}

TEST(Sequence, TimeoutNamesTheWait) {
  Sequence sequence;
  StopFlag stop;
  const auto start = Clock::now();
  EXPECT_EQ(sequence.Wait(1, stop, milliseconds(30), {"gradients of bucket", 7}),
            Outcome::kTimeout);
  EXPECT_GE(Clock::now() - start, milliseconds(30));
  EXPECT_TRUE(stop.stopped());
  EXPECT_EQ(stop.outcome(), Outcome::kTimeout);
  EXPECT_EQ(stop.Reason(), "timeout: gradients of bucket 7");
}

TEST(Sequence, StopEndsAWait) {
  Sequence sequence;
  StopFlag stop;
  Outcome outcome = Outcome::kOk;
  std::thread waiter([&] { outcome = sequence.Wait(1, stop, seconds(60), {"value"}); });
  const auto start = Clock::now();
  stop.Request();
  waiter.join();
  EXPECT_EQ(outcome, Outcome::kStopped);
  EXPECT_LT(Clock::now() - start, seconds(10));
  EXPECT_EQ(sequence.value(), 0u);
}

TEST(Sequence, WhatWasWrittenBeforePublishIsVisible) {
  Sequence sequence;
  StopFlag stop;
  std::vector<int> data(1000);
  std::thread writer([&] {
    for (size_t i = 0; i < data.size(); ++i) {
      data[i] = static_cast<int>(i) + 1;
      sequence.Publish(i + 1);
    }
  });
  for (size_t i = 0; i < data.size(); ++i) {
    ASSERT_EQ(sequence.Wait(i + 1, stop, seconds(60), {"item"}), Outcome::kOk);
    ASSERT_EQ(data[i], static_cast<int>(i) + 1);
  }
  writer.join();
}

// The rounds of a wake-up test: the waiter answers every value of `call` in `answer`.
struct Rounds {
  static constexpr uint64_t kCount = 21;
  Sequence call, answer;
  std::atomic<int> waiter_id{0};
};

bool Answer(Rounds& rounds) {
  StopFlag stop;
  rounds.waiter_id = gettid();
  for (uint64_t i = 1; i <= Rounds::kCount; ++i) {
    if (rounds.call.Wait(i, stop, seconds(60), {"call"}) != Outcome::kOk) return false;
    rounds.answer.Publish(i);
  }
  return true;
}

bool Sleeps(int process, int thread) {
  std::ifstream file(fmt::format("/proc/{}/task/{}/stat", process, thread));
  std::string line;
  std::getline(file, line);
  return line.find(") S ") != std::string::npos;
}

// How long a sleeping waiter takes to answer. Without a wake-up it finds the value only when its
// own 20 ms of sleep are over.
Clock::duration MedianAnswerTime(Rounds& rounds, int process) {
  while (rounds.waiter_id == 0) std::this_thread::yield();
  std::vector<Clock::duration> times;
  for (uint64_t i = 1; i <= Rounds::kCount; ++i) {
    while (!Sleeps(process, rounds.waiter_id)) std::this_thread::yield();
    const auto start = Clock::now();
    rounds.call.Publish(i);
    while (!rounds.answer.reached(i) && Clock::now() - start < seconds(20)) _mm_pause();
    times.push_back(Clock::now() - start);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

TEST(Sequence, SleepersAreWoken) {
  Rounds rounds;
  std::thread waiter([&] { EXPECT_TRUE(Answer(rounds)); });
  EXPECT_LT(MedianAnswerTime(rounds, getpid()), milliseconds(8));
  waiter.join();
}

TEST(Sequence, SleepersInOtherProcessesAreWoken) {
  void* memory =
      mmap(nullptr, sizeof(Rounds), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* rounds = new (memory) Rounds;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(Answer(*rounds) ? 0 : 1);
  EXPECT_LT(MedianAnswerTime(*rounds, child), milliseconds(8));
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  munmap(memory, sizeof(Rounds));
}

TEST(StopFlag, TheFirstReasonStays) {
  StopFlag stop;
  EXPECT_FALSE(stop.stopped());
  EXPECT_EQ(stop.Reason(), "not stopped");
  stop.Fail(Outcome::kNotFinite, "loss of iteration", 12);
  stop.Request();
  stop.Fail(Outcome::kTimeout, "bucket", 1);
  EXPECT_EQ(stop.outcome(), Outcome::kNotFinite);
  EXPECT_EQ(stop.Reason(), "not finite: loss of iteration 12");
}

TEST(StopFlag, OneOfManyWins) {
  StopFlag stop;
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < 8; ++i) {
    threads.emplace_back([&stop, i] { stop.Fail(Outcome::kTimeout, "thread", i); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stop.Reason().rfind("timeout: thread ", 0), 0u) << stop.Reason();
}

}  // namespace
}  // namespace parax
