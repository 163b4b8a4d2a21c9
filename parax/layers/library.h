#pragma once

#include <string>

namespace parax {

// The kernel library and the instruction set it uses here: "oneDNN 3.2.0 on AVX512-BF16".
// ONEDNN_MAX_CPU_ISA lowers the latter.
std::string KernelLibrary();

// Whether the CPU multiplies bf16: AVX512-BF16, or AMX that the operating system grants.
// ONEDNN_MAX_CPU_ISA counts here too.
bool HasBf16();

}  // namespace parax
