#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "parax/base/bell.h"
#include "parax/base/sequence.h"
#include "parax/gradserver/layout_internal.h"

namespace parax {

// A monotonic number that several leaves advance by atomic read-modify-write: tickets, arrivals,
// slices done. It starts at 0 and never goes back, so that its value alone tells the iteration.
struct alignas(64) Counter {
  std::atomic<uint64_t> n{0};
};

// What a leaf says about one iteration; two are kept, by parity. Written in BeginIteration and
// until the leaf's first Publish, read by those who see all leaves' arrivals.
struct LeafWords {
  double weight = 0;
  double rate = 0;
  int64_t samples = 0;
  int64_t micro_batches = 0;
};

// What the last leaf to publish a bucket gathered from all leaves' words. Read by its slices.
struct alignas(64) BucketWords {
  double rate = 0;
  float inverse_weight = 0;
  uint32_t active = 0;  // leaves with samples: so many entries of Control::active are valid
};

struct alignas(64) RecordWords {
  std::atomic<uint64_t> iteration{0};  // 0 while being written
  std::atomic<double> norm{0};
  std::atomic<double> clip{1};
};

// Pointers into the shared control block. The block itself holds numbers only, no pointers.
struct Control {
  static constexpr uint64_t kRecords = 8;

  // Sets the pointers for a block at `base`; returns the block's size (also for a null base).
  size_t Bind(const ServerLayout& layout, size_t leaves, std::byte* base);
  // Value of moments_arrived when all leaves' moments of `iteration` are there.
  static uint64_t MomentArrivals(uint64_t iteration, size_t leaves) {
    return leaves * ((iteration + 1) / 2);
  }
  // Constructs every word as it stands when `iteration` updates are in.
  void Reset(const ServerLayout& layout, size_t leaves, uint64_t iteration);

  // Of each bucket.
  Counter* arrived = nullptr;   // Publish calls: leaves * iteration when all are there
  Sequence* updated = nullptr;  // iterations whose update is in all forms
  BucketWords* bucket = nullptr;
  uint16_t* active = nullptr;  // rows of active_row leaf numbers, ascending
  // Of each task.
  Counter* opened = nullptr;  // iterations whose slices may be run (one writer at a time)
  Counter* done = nullptr;    // slices run: slices * iteration when all are
  Counter* ticket = nullptr;  // [task][owner]: slices claimed
  // Of each owner.
  std::atomic<uint64_t>* work = nullptr;  // rows of work_row: bit k: task k has slices to claim
  Bell* bell = nullptr;
  // Of each leaf.
  LeafWords* leaf = nullptr;                   // [leaf][2]
  std::atomic<uint64_t>* published = nullptr;  // rows of published_row: iteration, a bucket
  // Of the server.
  Counter* reduced = nullptr;          // buckets reduced (commit)
  Counter* moments_arrived = nullptr;  // [iteration % 2]: leaves * iterations of that parity
  Sequence* moments_done = nullptr;
  RecordWords* record = nullptr;       // [iteration % kRecords]
  double* gradient_squares = nullptr;  // a chunk: of the mean gradient
  double* weight_squares = nullptr;    // a chunk (LARS)
  double* local_rate = nullptr;        // a parameter (LARS)

  size_t active_row = 0, work_row = 0, published_row = 0;
};

}  // namespace parax
