#include "parax/engine/workers.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "parax/base/error.h"
#include "tests/numa/fake_system.h"

namespace parax {
namespace {

// A child process, because OpenMP reads the variable when a program starts.
TEST(WorkersDeathTest, OneThatCannotTakeItsSeatEndsAll) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const ScopedEnv limit("OMP_THREAD_LIMIT", "1");
  const auto start = [] {
    try {
      const Workers workers({{0, 0, {0}, false}, {1, 0, {0, 1}, false}, {2, 0, {0}, false}});
    } catch (const UsageError& error) {
      fmt::print(stderr, "{}\n", error.what());
      std::exit(3);
    }
    std::exit(0);
  };
  EXPECT_EXIT(start(), ::testing::ExitedWithCode(3), "OMP_THREAD_LIMIT");
}

TEST(Workers, TheLowestLeafsErrorComesOutAndTheNextJobRuns) {
  Workers workers({{0, 0, {}, false}, {1, 0, {}, false}, {2, 0, {}, false}});
  try {
    workers.Run([](int leaf) {
      if (leaf > 0) Fail("leaf {}", leaf);
    });
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "leaf 1");
  }
  std::atomic<int> ran{0};
  workers.Run([&](int) { ++ran; });
  EXPECT_EQ(ran.load(), 3);
}

}  // namespace
}  // namespace parax
