#include "parax/numa/limits.h"

#include <gtest/gtest.h>

#include "tests/numa/fake_system.h"

namespace parax {
namespace {

constexpr double kNoCpuLimit = std::numeric_limits<double>::infinity();
constexpr size_t kNoMemoryLimit = std::numeric_limits<size_t>::max();

TEST(CgroupLimits, NoneWithoutControlGroups) {
  const FakeRoot root;
  const CgroupLimits limits = ReadCgroupLimits(root.path());
  EXPECT_EQ(limits.cpus, kNoCpuLimit);
  EXPECT_EQ(limits.memory_bytes, kNoMemoryLimit);
  EXPECT_EQ(limits.cpus_file, "");
  EXPECT_EQ(limits.memory_file, "");
}

TEST(CgroupLimits, V2TheLeastOfAllAncestorsCounts) {
  const FakeRoot root;
  root.Write("proc/self/cgroup", "0::/a/b/c");
  root.Write("sys/fs/cgroup/a/cpu.max", "150000 100000");
  root.Write("sys/fs/cgroup/a/b/cpu.max", "max 100000");
  root.Write("sys/fs/cgroup/a/b/c/cpu.max", "400000 100000");
  root.Write("sys/fs/cgroup/a/memory.max", "max");
  root.Write("sys/fs/cgroup/a/b/memory.max", "4000000000");
  root.Write("sys/fs/cgroup/a/b/c/memory.max", "5000000000");
  root.Write("sys/fs/cgroup/other/cpu.max", "10000 100000");
  const CgroupLimits limits = ReadCgroupLimits(root.path());
  EXPECT_DOUBLE_EQ(limits.cpus, 1.5);
  EXPECT_EQ(limits.cpus_file, "/sys/fs/cgroup/a/cpu.max");
  EXPECT_EQ(limits.memory_bytes, 4000000000u);
  EXPECT_EQ(limits.memory_file, "/sys/fs/cgroup/a/b/memory.max");
}

TEST(CgroupLimits, V2TheMountPointItselfCountsInAContainer) {
  const FakeRoot root;
  root.Write("proc/self/cgroup", "0::/");
  root.Write("sys/fs/cgroup/cpu.max", "250000 100000");
  root.Write("sys/fs/cgroup/memory.high", "1000000");
  const CgroupLimits limits = ReadCgroupLimits(root.path());
  EXPECT_DOUBLE_EQ(limits.cpus, 2.5);
  EXPECT_EQ(limits.memory_bytes, 1000000u);
  EXPECT_EQ(limits.memory_file, "/sys/fs/cgroup/memory.high");
}

TEST(CgroupLimits, V1HasAFolderPerController) {
  const FakeRoot root;
  root.Write("proc/self/cgroup", "9:name=systemd:/x\n4:memory:/job/1\n1:cpu,cpuacct:/job/2\n0::/");
  root.Write("proc/self/mountinfo",
             "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
             "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
             "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
             "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw");
  root.Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1");
  root.Write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "300000");
  root.Write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000");
  root.Write("sys/fs/cgroup/cpu,cpuacct/job/2/cpu.cfs_quota_us", "-1");
  root.Write("sys/fs/cgroup/cpu,cpuacct/job/2/cpu.cfs_period_us", "100000");
  root.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  root.Write("sys/fs/cgroup/memory/job/1/memory.limit_in_bytes", "2000000000");
  const CgroupLimits limits = ReadCgroupLimits(root.path());
  EXPECT_DOUBLE_EQ(limits.cpus, 3.0);
  EXPECT_EQ(limits.cpus_file, "/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us");
  EXPECT_EQ(limits.memory_bytes, 2000000000u);
  EXPECT_EQ(limits.memory_file, "/sys/fs/cgroup/memory/job/1/memory.limit_in_bytes");
}

// Without a cgroup namespace a container sees the host's path, of which only a part is mounted.
TEST(CgroupLimits, OnlyASubtreeIsMounted) {
  const FakeRoot root;
  root.Write("proc/self/cgroup", "1:cpu:/docker/abc/inner\n4:memory:/elsewhere");
  root.Write("proc/self/mountinfo",
             "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"
             "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory");
  root.Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000");
  root.Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  root.Write("sys/fs/cgroup/cpu/inner/cpu.cfs_quota_us", "200000");
  root.Write("sys/fs/cgroup/cpu/inner/cpu.cfs_period_us", "100000");
  root.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "77777777");
  const CgroupLimits limits = ReadCgroupLimits(root.path());
  EXPECT_DOUBLE_EQ(limits.cpus, 2.0);
  EXPECT_EQ(limits.memory_bytes, 77777777u);
}

TEST(CgroupLimits, NonsenseDoesNotLimit) {
  const FakeRoot root;
  root.Write("proc/self/cgroup", "0::/../../x\nnonsense\n::");
  root.Write("sys/fs/cgroup/cpu.max", "lots");
  root.Write("sys/fs/cgroup/memory.max", "-5");
  const CgroupLimits limits = ReadCgroupLimits(root.path());
  EXPECT_EQ(limits.cpus, kNoCpuLimit);
  EXPECT_EQ(limits.memory_bytes, kNoMemoryLimit);
}

}  // namespace
}  // namespace parax
