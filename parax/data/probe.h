#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace parax {

// What a cheap look at an image file says. Kept in the index: append only.
enum class FileStatus : uint8_t {
  kGood = 0,
  kUnreadable,
  kEmpty,
  kNotAnImage,   // begins neither like JPEG nor like PNG
  kBadHeader,    // no size and colours where they must be
  kTruncated,    // the mark at the end is missing
  kUnsupported,  // lossless, 12-bit or hierarchical JPEG
};
inline constexpr FileStatus kLastFileStatus = FileStatus::kUnsupported;
std::string_view Reason(FileStatus status);

struct Probe {
  FileStatus status = FileStatus::kUnreadable;
  uint64_t bytes = 0;
  // Equal for files of equal content: of the size, the first 16 KB and the last 4 KB. Those hold
  // the compressed pixels' beginning and end (and PNG's check sums), so different photographs
  // differ.
  uint64_t fingerprint = 0;
};

// Reads 20 KB at most (unless the end looks wrong) and decodes nothing.
Probe ProbeFile(const std::filesystem::path& path);

bool IsImageName(std::string_view file_name);  // by extension: jpg, jpeg, png in any case

}  // namespace parax
