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
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
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

const Kernels& KernelsAt(Isa level) {
  switch (level) {
    case Isa::kAvx512:
      return avx512::kKernels;
    case Isa::kAvx2:
      return avx2::kKernels;
    case Isa::kBaseline:
      break;
  }
  return baseline::kKernels;
}

}  // namespace parax
