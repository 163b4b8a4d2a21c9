#pragma once

#include <vector>

#include "parax/engine/plan.h"

namespace parax {

// The gradient server's buckets as one op of a training plan meets them.
struct OpBuckets {
  std::vector<int> awaits;  // first used in the pass by this op: their last update must be in
  std::vector<int> uses;    // whose parameters it reads, or gradients it writes
};

// `bucket_of`: of each of the plan's parameters, -1 where the server does not hold it. Throws Error
// for a parameter of the server's that gets no gradient.
std::vector<OpBuckets> BucketsOf(const Plan& plan, const std::vector<int>& bucket_of);

}  // namespace parax
