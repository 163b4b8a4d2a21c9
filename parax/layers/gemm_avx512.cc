#include "parax/layers/gemm_internal.h"
#include "parax/layers/vectors_avx512_internal.h"

namespace parax {
namespace {

#include "parax/layers/finish_loops_internal.h"
#include "parax/layers/gemm_loops_internal.h"

}  // namespace

const GemmLoops kGemmAvx512 = kLoops;

}  // namespace parax
