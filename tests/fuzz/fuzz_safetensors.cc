#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "parax/base/error.h"
#include "parax/engine/safetensors.h"

// What is read must be consistent, and written again must read the same; anything else is an Error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const parax::Safetensors file =
        parax::ParseSafetensors(std::as_bytes(std::span(data, size)), "fuzz.safetensors");
    const parax::SafetensorsImage image = parax::MakeSafetensors(file.tensors, file.metadata);
    std::vector<std::byte> bytes;
    for (const auto& piece : image.pieces()) bytes.insert(bytes.end(), piece.begin(), piece.end());
    const parax::Safetensors again = parax::ParseSafetensors(bytes, "again.safetensors");
    if (again.tensors.size() != file.tensors.size() || again.metadata != file.metadata) abort();
  } catch (const parax::Error&) {
  }
  return 0;
}
