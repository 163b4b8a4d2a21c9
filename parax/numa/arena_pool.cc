#include "parax/numa/arena_pool.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace parax {

Arena ArenaPool::Take(size_t bytes, int os_node) {
  Arena arena;
  {
    const std::lock_guard lock(mutex_);
    std::vector<Arena>& kept = kept_[os_node];
    auto taken = std::ranges::find_if(kept, [&](const Arena& a) { return a.size() >= bytes; });
    if (taken == kept.end() && !kept.empty()) --taken;
    if (taken != kept.end()) {
      arena = std::move(*taken);
      kept.erase(taken);
    }
  }
  if (arena.size() >= bytes) {
    std::memset(arena.data(), 0, arena.size());
    return arena;
  }
  arena = Arena();  // before its successor is asked for
  return Arena(bytes, {.os_node = os_node});
}

void ArenaPool::Give(Arena arena, int os_node) {
  if (arena.size() == 0) return;
  const std::lock_guard lock(mutex_);
  kept_[os_node].push_back(std::move(arena));
}

}  // namespace parax
