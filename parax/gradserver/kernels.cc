#include <strings.h>

#include <cstdlib>

#include "parax/gradserver/kernels_internal.h"

namespace parax {
namespace {

namespace baseline {
#include "parax/gradserver/kernels.inc"
}

#pragma GCC push_options
#pragma GCC target("avx2")
namespace avx2 {
#include "parax/gradserver/kernels.inc"
}
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,prefer-vector-width=512")
namespace avx512 {
#include "parax/gradserver/kernels.inc"
}
#pragma GCC pop_options

}  // namespace

Kernels::Update Kernels::update(const OptimizerOptions& options) const {
  switch (options.kind) {
    case OptimizerKind::kSgd:
      return options.momentum == 0 ? sgd : options.nesterov ? sgd_nesterov : sgd_momentum;
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      return adam;
    case OptimizerKind::kLars:
      return lars;
  }
  return nullptr;
}

bool Supports(IsaLevel level) {
  switch (level) {
    case IsaLevel::kAvx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq");
    case IsaLevel::kAvx2:
      return __builtin_cpu_supports("avx2");
    case IsaLevel::kBaseline:
      return true;
  }
  return false;
}

IsaLevel DetectIsaLevel() {
  IsaLevel most = IsaLevel::kAvx512;
  if (const char* cap = std::getenv("ONEDNN_MAX_CPU_ISA")) {
    if (strcasecmp(cap, "SSE41") == 0 || strcasecmp(cap, "AVX") == 0) most = IsaLevel::kBaseline;
    if (strncasecmp(cap, "AVX2", 4) == 0) most = IsaLevel::kAvx2;
  }
  for (const IsaLevel level : {IsaLevel::kAvx512, IsaLevel::kAvx2}) {
    if (level <= most && Supports(level)) return level;
  }
  return IsaLevel::kBaseline;
}

const Kernels& KernelsAt(IsaLevel level) {
  switch (level) {
    case IsaLevel::kAvx512:
      return avx512::kKernels;
    case IsaLevel::kAvx2:
      return avx2::kKernels;
    case IsaLevel::kBaseline:
      break;
  }
  return baseline::kKernels;
}

}  // namespace parax
