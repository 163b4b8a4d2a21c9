#include "parax/gradserver/index_map.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace parax {

// Within a run there is no break: a place where the series with the runs' common stride ends, or
// where elements start or cease to be absent. So the longest run is the greatest common divisor of
// the array's length and of all breaks.
IndexMap CompressIndexMap(const std::vector<uint32_t>& position, uint64_t copy_elements) {
  IndexMap map;
  map.copy_elements = copy_elements;
  const size_t n = position.size();
  if (n == 0) return map;
  const auto absent = [&](size_t i) { return position[i] == IndexMap::kNone; };
  size_t k = 0;
  while (k < n && absent(k)) ++k;
  const int64_t stride = k + 1 < n ? int64_t{position[k + 1]} - int64_t{position[k]} : 1;
  size_t run = n;
  for (size_t i = 1; i < n && run > 1; ++i) {
    const bool same = absent(i) || absent(i - 1)
                          ? absent(i) && absent(i - 1)
                          : int64_t{position[i]} - int64_t{position[i - 1]} == stride;
    if (!same) run = std::gcd(run, i);
  }
  map.run = static_cast<uint32_t>(run);
  map.stride = run > 1 ? stride : 1;
  for (size_t first = 0; first < n; first += run) map.base.push_back(position[first]);
  return map;
}

}  // namespace parax
