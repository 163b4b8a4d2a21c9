#pragma once

#include <oneapi/tbb/parallel_for.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace parax {

// body(0) .. body(n - 1) on oneTBB's threads; an exception of one comes out here. The atomic
// repeats what oneTBB guarantees (calls see what was written before, and we see what they wrote):
// ThreadSanitizer cannot look into its library. It is static, as a call must reach it before it
// reads anything else, what the lambda captured included.
template <typename Body>
void ParallelFor(size_t n, const Body& body) {
  static std::atomic<uint64_t> handed{0};
  struct Hand {  // also on the way out of an exception
    ~Hand() { handed.fetch_add(1, std::memory_order_acq_rel); }
  };
  const auto call = [&body](size_t i) {
    (void)handed.load(std::memory_order_acquire);
    const Hand hand;
    body(i);
  };
  handed.fetch_add(1, std::memory_order_release);
  const Hand hand;
  tbb::parallel_for(size_t{0}, n, call);
}

}  // namespace parax
