#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace parax {

// NumPy's .npy files (format 1.0 to 3.0) of little-endian float32 in C order.
struct NpyArray {
  std::vector<int64_t> shape;
  std::vector<float> values;
};
// `name` stands for the file in errors. Throws Error for anything else, saying what is expected.
NpyArray ParseNpy(std::span<const std::byte> bytes, const std::string& name);
void WriteNpy(const std::filesystem::path& path, const std::vector<int64_t>& shape,
              std::span<const float> values);

}  // namespace parax
