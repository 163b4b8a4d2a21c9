#include "parax/base/isa.h"

#include <strings.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

namespace parax {
namespace {

std::atomic<Isa> limit{Isa::kAvx512};

Isa Detect() {
  Isa most = Isa::kAvx512;
  const char* cap = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (cap == nullptr) cap = std::getenv("DNNL_MAX_CPU_ISA");  // its older name
  if (cap != nullptr) {
    if (strcasecmp(cap, "SSE41") == 0 || strcasecmp(cap, "AVX") == 0) most = Isa::kBaseline;
    if (strncasecmp(cap, "AVX2", 4) == 0) most = Isa::kAvx2;
  }
  Isa here = Isa::kBaseline;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) here = Isa::kAvx2;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    here = Isa::kAvx512;
  }
  return std::min(here, most);
}

}  // namespace

std::string_view Name(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kBaseline:
      break;
  }
  return "baseline";
}

Isa CurrentIsa() {
  static const Isa detected = Detect();
  return std::min(detected, limit.load());
}

IsaLimit::IsaLimit(Isa new_limit) : before_(limit.exchange(new_limit)) {}
IsaLimit::~IsaLimit() { limit = before_; }

}  // namespace parax
