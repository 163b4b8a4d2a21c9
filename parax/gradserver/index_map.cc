#include "parax/gradserver/index_map.h"

#include <cstddef>

namespace parax {
namespace {

// Whether `position` is made of runs of `run` elements, each absent or an arithmetic series.
bool HoldsRuns(const std::vector<uint32_t>& position, size_t run, int64_t stride) {
  for (size_t first = 0; first < position.size(); first += run) {
    const uint32_t base = position[first];
    for (size_t j = 1; j < run; ++j) {
      const int64_t expected = base == IndexMap::kNone
                                   ? int64_t{IndexMap::kNone}
                                   : int64_t{base} + static_cast<int64_t>(j) * stride;
      if (int64_t{position[first + j]} != expected) return false;
    }
  }
  return true;
}

}  // namespace

IndexMap CompressIndexMap(const std::vector<uint32_t>& position, uint64_t copy_elements) {
  IndexMap map;
  map.copy_elements = copy_elements;
  const size_t n = position.size();
  // The longest run wins; a run always divides the array, and all runs share one stride.
  for (size_t pieces = 1; pieces <= n; ++pieces) {
    if (n % pieces != 0) continue;
    const size_t run = n / pieces;
    int64_t stride = 1;
    for (size_t first = 0; run > 1 && first < n; first += run) {
      if (position[first] == IndexMap::kNone) continue;
      stride = int64_t{position[first + 1]} - int64_t{position[first]};
      break;
    }
    if (!HoldsRuns(position, run, stride)) continue;
    map.run = static_cast<uint32_t>(run);
    map.stride = stride;
    for (size_t first = 0; first < n; first += run) map.base.push_back(position[first]);
    break;
  }
  return map;
}

}  // namespace parax
