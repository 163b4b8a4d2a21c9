#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parax/engine/tensors.h"

// The safetensors format: 8 bytes little-endian header length, a JSON header that maps each name to
// {dtype, shape, data_offsets}, raw data without gaps or overlaps.
// https://github.com/huggingface/safetensors
namespace parax {

using Metadata = std::map<std::string, std::string>;

struct Safetensors {
  TensorMap tensors;  // F64, F32, F16, BF16, I64, I32, U8 and BOOL become float32
  Metadata metadata;
};

// All of the file or Error, in one line naming file and tensor: anything that the format forbids
// (gaps, overlaps, sizes that do not fit, repeated names ...), other dtypes, and integers or
// doubles that float32 cannot hold (only num_batches_tracked is rounded). A pickled PyTorch file
// gets a line naming scripts/to-safetensors.py.
Safetensors ReadSafetensors(const std::filesystem::path& path);
// The same from memory; `name` stands for the file in messages.
Safetensors ParseSafetensors(std::span<const std::byte> bytes, std::string_view name);

// The bytes of a file: the header, then the tensors' own memory, which must outlive this.
struct SafetensorsImage {
  std::string header;
  std::vector<std::span<const std::byte>> data;
  std::vector<std::span<const std::byte>> pieces() const;
};
// All tensors as F32, in the map's order. Throws Error when dims and values disagree.
SafetensorsImage MakeSafetensors(const TensorMap& tensors, const Metadata& metadata = {});
// Whole or not at all (file.h).
void WriteSafetensors(const std::filesystem::path& path, const TensorMap& tensors,
                      const Metadata& metadata = {});

}  // namespace parax
