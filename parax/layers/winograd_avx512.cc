#include "parax/layers/transpose_internal.h"
#include "parax/layers/vectors_avx512_internal.h"
#include "parax/layers/winograd_internal.h"

namespace parax {
namespace {

constexpr int kMostRows = 6, kMostPanels = 4;  // 24 of the 32 registers hold sums

#include "parax/layers/finish_loops_internal.h"
#include "parax/layers/winograd_loops_internal.h"

}  // namespace

const WinogradLoops kWinogradAvx512 = kLoops;

}  // namespace parax
