#include "parax/layers/isa.h"

#include <algorithm>
#include <atomic>
#include <dnnl.hpp>

namespace parax {
namespace {

std::atomic<Isa> limit{Isa::kAvx512};

// oneDNN's constants are bit sets, each level containing those below it.
Isa IsaOfOnednn() {
  const auto effective = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto has = [&](dnnl::cpu_isa isa) {
    return (effective & static_cast<unsigned>(isa)) == static_cast<unsigned>(isa);
  };
  if (has(dnnl::cpu_isa::avx512_core)) return Isa::kAvx512;
  return has(dnnl::cpu_isa::avx2) ? Isa::kAvx2 : Isa::kBaseline;
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
  static const Isa of_onednn = IsaOfOnednn();
  return std::min(of_onednn, limit.load());
}

IsaLimit::IsaLimit(Isa new_limit) : before_(limit.exchange(new_limit)) {}
IsaLimit::~IsaLimit() { limit = before_; }

}  // namespace parax
