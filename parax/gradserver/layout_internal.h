#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parax/gradserver/server.h"

namespace parax {

inline constexpr size_t kChunk = 4096;  // elements: the unit of norms and of the fused pass
inline constexpr size_t kLine = 16;     // floats a cache line

constexpr size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

enum class TaskKind : uint8_t {
  kFused,   // reduce and update in one pass (eager)
  kReduce,  // into the reduced copy, with norms
  kUpdate,  // from the reduced copy
  kMoments,
};

// How parameters are cut into buckets, slices and chunks, and the tasks that follow from it. The
// same in every process: computed from the options alone. All arrays of floats (masters, EMA,
// states, gradient slots, the reduced copy) share one order, in which a parameter starts on a cache
// line.
struct ServerLayout {
  struct Parameter {
    size_t offset = 0, elements = 0;
    int bucket = 0;
    uint32_t first_chunk = 0, chunks = 0;
  };
  struct Chunk {  // at most kChunk elements of one parameter, from a multiple of kChunk
    uint32_t parameter = 0, count = 0;
    size_t within = 0;
  };
  struct Bucket {
    int first_parameter = 0, last_parameter = 0;  // one past
    uint32_t first_slice = 0, slices = 0;
  };
  struct MomentSlice {
    uint32_t moment = 0, first = 0, last = 0;  // channels, one past
  };
  struct Share {  // an owner's slices of a task: first, first + owners, ...
    uint32_t first = 0, count = 0;
  };
  struct Task {
    TaskKind kind = TaskKind::kFused;
    int bucket = 0;
    uint32_t slices = 0;
    std::vector<Share> shares;  // one an owner
  };

  explicit ServerLayout(const ServerOptions& options);

  int UpdateTask(int bucket) const { return bucket_count() - 1 - bucket; }
  int FirstTask(int bucket) const { return (two_phases ? 2 : 1) * bucket_count() - 1 - bucket; }
  int MomentTask() const { return static_cast<int>(tasks.size()) - 1; }  // if there are moments
  int bucket_count() const { return static_cast<int>(buckets.size()); }
  size_t chunk_offset(const Chunk& c) const { return parameters[c.parameter].offset + c.within; }

  bool two_phases = false;  // commit, or LARS (which needs whole tensors' norms first)
  size_t floats = 0;        // of each array, gaps included
  std::vector<Parameter> parameters;
  std::vector<Chunk> chunks;           // by parameter, then offset
  std::vector<uint32_t> slice_chunks;  // slice s: chunks [s], [s + 1)
  std::vector<Bucket> buckets;
  std::vector<MomentSlice> moment_slices;
  std::vector<int> owner;  // of each domain: its number among those with leaves, or -1
  uint32_t owners = 0;
  std::vector<Task> tasks;            // the most urgent first
  std::vector<size_t> moment_offset;  // of each moment in a leaf's moment array of one iteration
  size_t moment_floats = 0;           // of that array
};

}  // namespace parax
