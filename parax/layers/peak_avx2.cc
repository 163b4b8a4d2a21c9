#include "parax/layers/peak_internal.h"
#include "parax/layers/vectors_avx2_internal.h"

namespace parax {
namespace {

#include "parax/layers/peak_loops_internal.h"

}  // namespace

const PeakLoop kPeakAvx2 = kLoop;

}  // namespace parax
