#include "parax/numa/arena_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "parax/base/error.h"
#include "parax/numa/sysfs.h"

namespace parax {
namespace {

constexpr size_t kMega = size_t{1} << 20;

TEST(ArenaPool, HandsAnArenaOnZeroedAndNeverOneThatIsTooSmall) {
  ArenaPool pool;
  Arena first = pool.Take(8 * kMega, -1);
  std::byte* const address = first.data();
  std::memset(address, 7, first.size());
  pool.Give(std::move(first), -1);

  Arena again = pool.Take(5 * kMega, -1);
  EXPECT_EQ(again.data(), address);
  EXPECT_TRUE(std::all_of(again.data(), again.data() + again.size(),
                          [](std::byte b) { return b == std::byte{0}; }));
  const Arena other = pool.Take(kMega, -1);  // while `again` is out
  EXPECT_NE(other.data(), address);
  pool.Give(std::move(again), -1);
}

// Not both at once: memory may be short.
TEST(ArenaPool, FreesAnArenaThatIsTooSmallFirst) {
  ArenaPool pool;
  pool.Give(pool.Take(8 * kMega, -1), -1);
  const size_t before = KilobytesOf(SystemText("/proc/self/status"), "VmSize:");
  const Arena larger = pool.Take(16 * kMega, -1);
  EXPECT_GE(larger.size(), 16 * kMega);
  EXPECT_LT(KilobytesOf(SystemText("/proc/self/status"), "VmSize:"), before + 12 * kMega);
}

TEST(ArenaPool, ServesThreadsAtOnce) {
  ArenaPool pool;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 50; ++i) {
        Arena arena = pool.Take(kMega, -1);
        std::memset(arena.data(), t, arena.size());
        EXPECT_TRUE(std::all_of(arena.data(), arena.data() + arena.size(),
                                [t](std::byte b) { return b == std::byte(t); }));
        pool.Give(std::move(arena), -1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ArenaPool, KeepsNodesApart) {
  ArenaPool pool;
  Arena first = pool.Take(2 * kMega, 0);
  std::byte* const address = first.data();
  pool.Give(std::move(first), 0);
  EXPECT_NE(pool.Take(2 * kMega, -1).data(), address);
  EXPECT_EQ(pool.Take(2 * kMega, 0).data(), address);
}

TEST(ArenaPool, ErrorsAreThoseOfAllocating) {
  ArenaPool pool;
  pool.Give(pool.Take(kMega, -1), -1);
  EXPECT_THROW((void)pool.Take(size_t{1} << 60, -1), Error);
  EXPECT_GE(pool.Take(kMega, -1).size(), kMega);
}

}  // namespace
}  // namespace parax
