#include "parax/layers/transpose_internal.h"
#include "parax/layers/vectors_avx2_internal.h"
#include "parax/layers/winograd_internal.h"

namespace parax {
namespace {

constexpr int kMostRows = 6, kMostPanels = 1;  // 12 of the 16 registers hold sums

#include "parax/layers/finish_loops_internal.h"
#include "parax/layers/winograd_loops_internal.h"

}  // namespace

const WinogradLoops kWinogradAvx2 = kLoops;

}  // namespace parax
