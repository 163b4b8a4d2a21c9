#include "parax/engine/plan_buckets.h"

#include <algorithm>
#include <set>

#include "parax/base/error.h"

namespace parax {

std::vector<OpBuckets> BucketsOf(const Plan& plan, const std::vector<int>& bucket_of) {
  std::vector<OpBuckets> ops(plan.ops.size());
  std::set<int> awaited;
  std::vector<bool> written(plan.params.size(), false);
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    for (const PlanArgument& argument : plan.ops[i].arguments) {
      int param = -1;
      if (argument.place == Place::kForm)
        param = plan.forms[static_cast<size_t>(argument.index)].param;
      if (argument.place == Place::kGradient) {
        param = argument.index;
        written[static_cast<size_t>(param)] = true;
      }
      if (param < 0) continue;
      const int bucket = bucket_of[static_cast<size_t>(param)];
      if (bucket < 0) continue;
      if (awaited.insert(bucket).second) ops[i].awaits.push_back(bucket);
      std::vector<int>& uses = ops[i].uses;
      if (std::ranges::find(uses, bucket) == uses.end()) uses.push_back(bucket);
    }
  }
  for (size_t p = 0; p < written.size(); ++p) {
    if (bucket_of[p] >= 0 && !written[p]) {
      Fail("parameter {} gets no gradient: it does not lead to the logits", plan.params[p].name);
    }
  }
  return ops;
}

}  // namespace parax
