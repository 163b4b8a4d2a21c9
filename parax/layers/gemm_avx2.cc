#include "parax/layers/gemm_internal.h"
#include "parax/layers/vectors_avx2_internal.h"

namespace parax {
namespace {

#include "parax/layers/finish_loops_internal.h"
#include "parax/layers/gemm_loops_internal.h"

}  // namespace

const GemmLoops kGemmAvx2 = kLoops;

}  // namespace parax
