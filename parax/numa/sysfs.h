#pragma once

#include <charconv>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "parax/base/error.h"
#include "parax/base/file.h"

namespace parax {

// A file of /proc or /sys without its trailing white space; "" when it cannot be read, because most
// of these files exist only on some kernels.
inline std::string SystemText(const std::filesystem::path& path) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code)) return {};
  try {
    std::string text = ReadFile(path, size_t{1} << 24);
    text.erase(text.find_last_not_of(" \t\n") + 1);
    return text;
  } catch (const Error&) {
    return {};
  }
}

inline std::optional<size_t> ParseSize(std::string_view text) {
  size_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code == std::errc::result_out_of_range) return std::numeric_limits<size_t>::max();
  if (code != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

inline size_t SystemNumber(const std::filesystem::path& path) {
  return ParseSize(SystemText(path)).value_or(0);
}

// The value after `key` ("MemAvailable:") in text shaped like /proc/meminfo or /proc/self/status.
inline std::string_view FieldOf(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  if (at == std::string_view::npos) return {};
  std::string_view rest = text.substr(at + key.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  return rest.substr(0, rest.find('\n'));
}

// The same, for a size in kB; in bytes. 0 when there is no such field.
inline size_t KilobytesOf(std::string_view text, std::string_view key) {
  return ParseSize(FieldOf(text, key)).value_or(0) * 1024;
}

}  // namespace parax
