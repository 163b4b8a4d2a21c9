#include "parax/numa/arena.h"

#include <numaif.h>
#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "parax/base/error.h"
#include "parax/base/text.h"
#include "parax/numa/limits.h"
#include "parax/numa/sysfs.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace parax {
namespace {

constexpr size_t kSmallPage = 4096;
constexpr size_t kPage2M = size_t{1} << 21;
constexpr size_t kPage1G = size_t{1} << 30;
constexpr int kMaxNodes = 1024;
constexpr int kPageSizeShift = 26;  // MAP_HUGE_SHIFT

size_t RoundUp(size_t bytes, size_t page) { return (bytes + page - 1) / page * page; }

// Whether whole pages of this size waste at most an eighth.
bool Suits(size_t bytes, size_t page) { return RoundUp(bytes, page) - bytes <= bytes / 8; }

std::string NodeFolder(int node) { return fmt::format("/sys/devices/system/node/node{}", node); }

size_t FreeHugeBytes(size_t page, int node) {
  const std::string base = node < 0 ? "/sys/kernel/mm" : NodeFolder(node);
  return page *
         SystemNumber(fmt::format("{}/hugepages/hugepages-{}kB/free_hugepages", base, page / 1024));
}

// Free or reclaimable without swapping.
size_t NodeAvailable(int node) {
  const std::string info = SystemText(NodeFolder(node) + "/meminfo");
  return KilobytesOf(info, "MemFree:") + KilobytesOf(info, "Active(file):") +
         KilobytesOf(info, "Inactive(file):") + KilobytesOf(info, "SReclaimable:");
}

// A strict policy on a node without room would have us killed, so then the node is only preferred.
bool Bind(void* data, size_t bytes, int node, size_t available) {
  if (node < 0 || node >= kMaxNodes) return false;
  std::array<unsigned long, kMaxNodes / 64> mask{};
  const auto n = static_cast<unsigned>(node);
  mask[n / 64] = 1ul << (n % 64);
  const bool fits = bytes <= available;
  const long rc = mbind(data, bytes, fits ? MPOL_BIND : MPOL_PREFERRED, mask.data(), kMaxNodes, 0);
  return rc == 0 && fits;
}

// 0 or errno. Unlike touching, it reports missing memory instead of ending in SIGBUS.
int Populate(void* data, size_t bytes) {
  while (madvise(data, bytes, MADV_POPULATE_WRITE) != 0) {
    if (errno != EINTR && errno != EAGAIN) return errno;
  }
  return 0;
}

bool TransparentPagesAllowed(bool shared) {
  const std::string setting = SystemText(
      fmt::format("/sys/kernel/mm/transparent_hugepage/{}", shared ? "shmem_enabled" : "enabled"));
  return !setting.empty() && setting.find("[never]") == std::string::npos &&
         setting.find("[deny]") == std::string::npos;
}

struct Mapping {
  void* data = MAP_FAILED;
  size_t bytes = 0;
  bool bound = false;
  PageKind pages = PageKind::kSmall;
  explicit operator bool() const { return data != MAP_FAILED; }
};

int Flags(const ArenaOptions& options) {
  return MAP_ANONYMOUS | (options.shared ? MAP_SHARED : MAP_PRIVATE);
}

// Reserved huge pages; nothing when there are too few, or when the kernel (before 5.14) could only
// answer a shortage that appears meanwhile with SIGBUS.
Mapping MapHuge(size_t bytes, size_t page, const ArenaOptions& options) {
  Mapping mapping;
  const size_t available = FreeHugeBytes(page, options.os_node);
  mapping.bytes = RoundUp(bytes, page);
  if (!Suits(bytes, page) || mapping.bytes > available) return {};
  const int size_flag = __builtin_ctzl(page) << kPageSizeShift;
  mapping.data = mmap(nullptr, mapping.bytes, PROT_READ | PROT_WRITE,
                      Flags(options) | MAP_HUGETLB | size_flag, -1, 0);
  if (!mapping) return {};
  mapping.bound = Bind(mapping.data, mapping.bytes, options.os_node, available);
  if (Populate(mapping.data, mapping.bytes) != 0) {
    munmap(mapping.data, mapping.bytes);
    return {};
  }
  mapping.pages = page == kPage1G ? PageKind::kHuge1G : PageKind::kHuge2M;
  return mapping;
}

// Maps more than asked and gives the unaligned ends back.
void* MapAligned(size_t bytes, size_t alignment, int flags) {
  const size_t extra = alignment - kSmallPage;
  void* raw = mmap(nullptr, bytes + extra, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (raw == MAP_FAILED) return raw;
  auto* begin = static_cast<std::byte*>(raw);
  const size_t before =
      RoundUp(reinterpret_cast<uintptr_t>(raw), alignment) - reinterpret_cast<uintptr_t>(raw);
  if (before > 0) munmap(begin, before);
  if (extra > before) munmap(begin + before + bytes, extra - before);
  return begin + before;
}

[[noreturn]] void FailAllocation(size_t bytes, int node, const std::string& why) {
  const std::string where = node < 0 ? "" : fmt::format(" on NUMA node {}", node);
  Fail("cannot allocate {} ({} bytes){}: {}", HumanBytes(static_cast<double>(bytes)), bytes, where,
       why);
}

// Every page is written below, so what the system cannot back now would get the process killed.
void CheckRoom(size_t bytes, int node) {
  const std::string info = SystemText("/proc/meminfo");
  const size_t available = KilobytesOf(info, "MemAvailable:");
  if (available > 0 && bytes > available) {
    FailAllocation(bytes, node,
                   fmt::format("{} are available", HumanBytes(static_cast<double>(available))));
  }
  const CgroupLimits limits = ReadCgroupLimits();
  if (bytes > limits.memory_bytes) {
    FailAllocation(
        bytes, node,
        fmt::format("the memory limit is {} ({})",
                    HumanBytes(static_cast<double>(limits.memory_bytes)), limits.memory_file));
  }
}

Mapping MapNormal(size_t bytes, const ArenaOptions& options) {
  CheckRoom(bytes, options.os_node);
  Mapping mapping;
  const bool large = bytes >= kPage2M;
  mapping.bytes = RoundUp(bytes, large && Suits(bytes, kPage2M) ? kPage2M : kSmallPage);
  mapping.data = MapAligned(mapping.bytes, large ? kPage2M : kSmallPage, Flags(options));
  if (!mapping) FailAllocation(bytes, options.os_node, std::strerror(errno));
  if (large && madvise(mapping.data, mapping.bytes, MADV_HUGEPAGE) == 0 &&
      TransparentPagesAllowed(options.shared)) {
    mapping.pages = PageKind::kTransparent;
  }
  mapping.bound =
      Bind(mapping.data, mapping.bytes, options.os_node, NodeAvailable(options.os_node));
  const int error = Populate(mapping.data, mapping.bytes);
  if (error == EINVAL) {  // before Linux 5.14
    auto* bytes_of = static_cast<volatile std::byte*>(mapping.data);
    for (size_t i = 0; i < mapping.bytes; i += kSmallPage) bytes_of[i] = std::byte{0};
  } else if (error != 0) {
    munmap(mapping.data, mapping.bytes);
    FailAllocation(bytes, options.os_node, std::strerror(error));
  }
  return mapping;
}

}  // namespace

std::string_view Name(PageKind kind) {
  switch (kind) {
    case PageKind::kHuge1G:
      return "1 GB pages";
    case PageKind::kHuge2M:
      return "2 MB pages";
    case PageKind::kTransparent:
      return "transparent huge pages";
    case PageKind::kSmall:
      return "4 KB pages";
  }
  return "unknown pages";
}

Arena::Arena(size_t bytes, const ArenaOptions& options) : size_(bytes) {
  if (bytes == 0) return;
  if (bytes > std::numeric_limits<size_t>::max() / 4)
    FailAllocation(bytes, options.os_node, "absurd");
  Mapping mapping = MapHuge(bytes, kPage1G, options);
  if (!mapping) mapping = MapHuge(bytes, kPage2M, options);
  if (!mapping) mapping = MapNormal(bytes, options);
  data_ = static_cast<std::byte*>(mapping.data);
  mapped_ = mapping.bytes;
  bound_ = mapping.bound;
  pages_ = mapping.pages;
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, mapped_);
}

Arena::Arena(Arena&& other) noexcept { *this = std::move(other); }

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  std::swap(pages_, other.pages_);
  std::swap(bound_, other.bound_);
  return *this;
}

}  // namespace parax
