#include <algorithm>
#include <cstring>

#include "parax/base/error.h"
#include "parax/base/isa.h"
#include "parax/gradserver/forms_internal.h"

namespace parax {

void CheckMap(const IndexMap& map, size_t elements) {
  if (map.run == 0 || map.base.size() * map.run != elements) {
    Fail("an index map of {} runs of {} does not cover {} elements", map.base.size(), map.run,
         elements);
  }
  for (const uint32_t base : map.base) {
    if (base == IndexMap::kNone) continue;
    const int64_t last = int64_t{base} + (int64_t{map.run} - 1) * map.stride;
    if (base >= map.copy_elements || last < 0 || last >= static_cast<int64_t>(map.copy_elements)) {
      Fail("an index map sends elements to {} and {} of a copy of {}", base, last,
           map.copy_elements);
    }
  }
}

bool IsIdentity(const IndexMap& map, size_t elements) {
  return map.type == DType::kF32 && map.copy_elements == elements && map.run == elements &&
         map.base[0] == 0 && (map.stride == 1 || elements == 1);
}

namespace {

constexpr size_t kBlock = 1024;  // values rounded at a time: they stay in the first cache

template <typename T>
void Write(const IndexMap& map, const T* values, size_t first, size_t n, T* copy) {
  const uint32_t* base = map.base.data();
  if (map.run == 1) {
    for (size_t i = 0; i < n; ++i) {
      if (base[first + i] != IndexMap::kNone) copy[base[first + i]] = values[i];
    }
    return;
  }
  size_t run = first / map.run;
  size_t from = first % map.run;  // only the first run of a chunk can start in its middle
  for (size_t i = 0; i < n; ++run, from = 0) {
    const size_t count = std::min(map.run - from, n - i);
    if (base[run] != IndexMap::kNone) {
      T* to = copy + (int64_t{base[run]} + static_cast<int64_t>(from) * map.stride);
      if (map.stride == 1) {
        std::memcpy(to, values + i, count * sizeof(T));
      } else {
        for (size_t j = 0; j < count; ++j, to += map.stride) *to = values[i + j];
      }
    }
    i += count;
  }
}

}  // namespace

void WriteForm(const IndexMap& map, const float* values, size_t first, size_t n, void* copy) {
  if (map.type == DType::kF32) return Write(map, values, first, n, static_cast<float*>(copy));
  static const Isa isa = CurrentIsa();
  BFloat16 rounded[kBlock];
  for (size_t done = 0; done < n; done += kBlock) {
    const size_t count = std::min(kBlock, n - done);
    RunAtIsa(isa, [to = rounded, from = values + done, count]() PARAX_INLINE {
      for (size_t i = 0; i < count; ++i) to[i] = BFloat16(from[i]);
    });
    Write(map, rounded, first + done, count, static_cast<BFloat16*>(copy));
  }
}

}  // namespace parax
