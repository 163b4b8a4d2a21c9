#pragma once

#include <cstddef>
#include <string_view>

namespace parax {

enum class PageKind { kHuge1G, kHuge2M, kTransparent, kSmall };
std::string_view Name(PageKind kind);

struct ArenaOptions {
  int os_node = -1;     // bind to this NUMA node; -1: wherever first touched
  bool shared = false;  // MAP_SHARED (anonymous): for memory that other processes will attach to
};

// A block of zeroed memory on one NUMA node, in the largest pages the system grants, every page
// faulted in already: using it makes no page faults. Move-only; frees the block when destroyed.
class Arena {
 public:
  Arena() = default;
  // Throws Error when the memory cannot be had, saying how much was asked for and where.
  explicit Arena(size_t bytes, const ArenaOptions& options = {});
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;

  std::byte* data() const { return data_; }  // aligned to at least 4096
  size_t size() const { return size_; }      // usable bytes: what was asked for
  size_t mapped_bytes() const { return mapped_; }
  PageKind pages() const { return pages_; }
  bool bound() const { return bound_; }  // false when mbind was denied (or not asked for)

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t mapped_ = 0;
  PageKind pages_ = PageKind::kSmall;
  bool bound_ = false;
};

}  // namespace parax
