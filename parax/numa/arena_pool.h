#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "parax/numa/arena.h"

namespace parax {

// Arenas that the next user takes over from the last: a host may take seconds to back a gigabyte of
// a virtual machine's memory that it has taken back. Not for shared memory. Thread-safe.
class ArenaPool {
 public:
  // At least `bytes` of zeroed memory on a node, as Arena; errors are Arena's. When what was given
  // back on this node is too small, one arena of it is freed first.
  Arena Take(size_t bytes, int os_node);
  void Give(Arena arena, int os_node);

 private:
  std::mutex mutex_;
  std::map<int, std::vector<Arena>> kept_;  // a node
};

}  // namespace parax
