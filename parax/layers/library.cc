#include "parax/layers/library.h"

#include <fmt/core.h>

#include <oneapi/dnnl/dnnl.hpp>

namespace parax {
namespace {

const char* IsaName() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "SSE4.1";
    case dnnl::cpu_isa::avx:
      return "AVX";
    case dnnl::cpu_isa::avx2:
      return "AVX2";
    case dnnl::cpu_isa::avx2_vnni:
      return "AVX2-VNNI";
    case dnnl::cpu_isa::avx512_core:
      return "AVX512";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "AVX512-VNNI";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "AVX512-BF16";
    default:
      return "an instruction set beyond AVX512-BF16";
  }
}

}  // namespace

std::string KernelLibrary() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{} on {}", version->major, version->minor, version->patch,
                     IsaName());
}

bool HasBf16() {
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();  // AMX only where it is granted
  constexpr auto kBf16 = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (static_cast<unsigned>(isa) & kBf16) == kBf16;
}

}  // namespace parax
