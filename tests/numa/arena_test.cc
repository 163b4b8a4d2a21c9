#include "parax/numa/arena.h"

#include <gtest/gtest.h>
#include <numaif.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "parax/base/error.h"
#include "parax/numa/sysfs.h"
#include "tests/numa/fake_system.h"

namespace parax {
namespace {

constexpr size_t kMega = size_t{1} << 20;

bool AllZero(const Arena& arena) {
  return std::all_of(arena.data(), arena.data() + arena.size(),
                     [](std::byte b) { return b == std::byte{0}; });
}

long MinorFaults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

std::string MessageOf(size_t bytes, const ArenaOptions& options = {}) {
  try {
    const Arena arena(bytes, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Arena, IsZeroedAlignedAndLargeEnough) {
  for (size_t bytes : {size_t{1}, size_t{4096}, size_t{5000}, 2 * kMega, 3 * kMega, 33 * kMega}) {
    for (bool shared : {false, true}) {
      const Arena arena(bytes, {-1, shared});
      EXPECT_EQ(arena.size(), bytes);
      EXPECT_GE(arena.mapped_bytes(), bytes);
      EXPECT_LE(arena.mapped_bytes(), bytes + bytes / 8 + 4096) << "wasteful";
      const size_t alignment = bytes >= 2 * kMega ? 2 * kMega : 4096;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.data()) % alignment, 0u);
      EXPECT_TRUE(AllZero(arena));
      EXPECT_FALSE(arena.bound());
      EXPECT_NE(Name(arena.pages()), "unknown pages");
    }
  }
}

TEST(Arena, EveryPageIsFaultedIn) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's own memory makes page faults";
#endif
  for (bool shared : {false, true}) {
    const Arena arena(64 * kMega, {-1, shared});
    const long before = MinorFaults();
    for (size_t i = 0; i < arena.size(); i += 4096) {
      static_cast<volatile std::byte*>(arena.data())[i] = std::byte{1};
    }
    EXPECT_LE(MinorFaults() - before, 2) << "shared: " << shared;
  }
}

// The kernel's own account: how much of the mapping at `data` lies in huge pages.
size_t HugeBytesAt(const std::byte* data) {
  const std::string smaps = SystemText("/proc/self/smaps");
  const size_t at = smaps.find(fmt::format("{:x}-", reinterpret_cast<uintptr_t>(data)));
  return at == std::string::npos ? 0 : KilobytesOf(smaps.substr(at), "AnonHugePages:");
}

TEST(Arena, TransparentHugePagesAreUsedWhereAllowed) {
  const Arena arena(64 * kMega);
  if (arena.pages() != PageKind::kTransparent) GTEST_SKIP() << Name(arena.pages()) << " here";
  EXPECT_GE(HugeBytesAt(arena.data()), arena.size() / 2);  // the rest when memory is fragmented
}

TEST(Arena, ReservedHugePagesAreUsedWhileTheyLast) {
  const size_t free_pages =
      SystemNumber("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages");
  if (free_pages < 3) GTEST_SKIP() << "fewer than three 2 MB pages are free on node 0";
  const Arena first(6 * kMega, {0, true});
  EXPECT_EQ(first.pages(), PageKind::kHuge2M);
  EXPECT_TRUE(AllZero(first));
  const Arena too_large((free_pages + 1) * 2 * kMega, {0, false});
  EXPECT_NE(too_large.pages(), PageKind::kHuge2M);
}

TEST(Arena, IsBoundToItsNode) {
  const Arena arena(8 * kMega, {0, false});
  if (!arena.bound()) GTEST_SKIP() << "mbind is denied here";
  std::vector<void*> pages;
  for (size_t i = 0; i < arena.size(); i += 4096) pages.push_back(arena.data() + i);
  std::vector<int> nodes(pages.size(), -1);
  ASSERT_EQ(move_pages(0, pages.size(), pages.data(), nullptr, nodes.data(), 0), 0);
  EXPECT_EQ(std::count(nodes.begin(), nodes.end(), 0), static_cast<long>(nodes.size()));
  int mode = -1;
  ASSERT_EQ(get_mempolicy(&mode, nullptr, 0, arena.data(), MPOL_F_ADDR), 0);
  EXPECT_EQ(mode, MPOL_BIND);
}

TEST(Arena, ANodeThatCannotBeBoundIsNoFailure) {
  for (int node : {1000, 5000}) {
    const Arena arena(kMega, {node, false});
    EXPECT_FALSE(arena.bound());
    EXPECT_TRUE(AllZero(arena));
  }
}

TEST(Arena, ADeniedBindingIsNoFailure) {
  std::thread([] {
    if (!DenyMbind()) GTEST_SKIP() << "no seccomp here";
    const Arena arena(8 * kMega, {0, false});
    EXPECT_FALSE(arena.bound());
    EXPECT_TRUE(AllZero(arena));
  }).join();
}

TEST(Arena, SharedMemoryIsSeenByOtherProcesses) {
  const Arena shared(kMega, {-1, true});
  const Arena own(kMega);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    shared.data()[7] = own.data()[7] = std::byte{42};
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(shared.data()[7], std::byte{42});
  EXPECT_EQ(own.data()[7], std::byte{0});
}

bool IsMapped(const std::byte* data) {
  unsigned char resident = 0;
  return mincore(const_cast<std::byte*>(data), 4096, &resident) == 0;
}

TEST(Arena, MovesAndFreesOnce) {
  Arena empty;
  EXPECT_EQ(empty.data(), nullptr);
  EXPECT_EQ(Arena(0).data(), nullptr);
  const std::byte* data = nullptr;
  {
    Arena first(kMega);
    data = first.data();
    Arena second(std::move(first));
    EXPECT_EQ(second.data(), data);
    empty = std::move(second);
    EXPECT_EQ(empty.size(), kMega);
  }
  EXPECT_TRUE(IsMapped(data));
  empty = Arena();
  EXPECT_FALSE(IsMapped(data));
}

TEST(Arena, MoreThanThereIsIsAnErrorThatSaysHowMuch) {
  const std::string message = MessageOf(size_t{1} << 50);
  EXPECT_NE(message.find("1.13 PB (1125899906842624 bytes)"), std::string::npos) << message;
  EXPECT_NE(message.find("available"), std::string::npos) << message;
  EXPECT_NE(MessageOf(size_t{1} << 50, {3, false}).find("on NUMA node 3"), std::string::npos);
  EXPECT_NE(MessageOf(std::numeric_limits<size_t>::max()), "no error");
}

TEST(Arena, ARefusedMappingIsAnError) {
  const size_t pages = ParseSize(SystemText("/proc/self/statm")).value_or(0);
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &old), 0);
  const rlimit limit{pages * 4096 + 64 * kMega, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  const std::string message = MessageOf(256 * kMega);
  setrlimit(RLIMIT_AS, &old);
  EXPECT_EQ(message, "cannot allocate 268 MB (268435456 bytes): Cannot allocate memory");
}

}  // namespace
}  // namespace parax
