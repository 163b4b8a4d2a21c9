#pragma once

#include <oneapi/tbb/parallel_for.h>

#include <atomic>
#include <cstddef>

namespace parax {

// body(0) .. body(n - 1) on oneTBB's threads; an exception of one comes out here. The two atomics
// repeat what oneTBB guarantees (calls see what was written before, and we see what they wrote):
// ThreadSanitizer cannot look into its library.
template <typename Body>
void ParallelFor(size_t n, const Body& body) {
  std::atomic<bool> begun{false};
  std::atomic<size_t> done{0};
  begun.store(true, std::memory_order_release);
  tbb::parallel_for(size_t{0}, n, [&](size_t i) {
    (void)begun.load(std::memory_order_acquire);
    body(i);
    done.fetch_add(1, std::memory_order_release);
  });
  (void)done.load(std::memory_order_acquire);
}

}  // namespace parax
