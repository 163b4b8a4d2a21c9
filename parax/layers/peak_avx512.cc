#include "parax/layers/peak_internal.h"
#include "parax/layers/vectors_avx512_internal.h"

namespace parax {
namespace {

#include "parax/layers/peak_loops_internal.h"

}  // namespace

const PeakLoop kPeakAvx512 = kLoop;

}  // namespace parax
