#include "parax/cli/npy.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include "parax/base/error.h"
#include "parax/base/file.h"

namespace parax {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

// The text after `key` in the header's Python dictionary.
std::string_view After(std::string_view header, std::string_view key, const std::string& name) {
  const size_t at = header.find(key);
  if (at == std::string_view::npos) Fail("{}: no {} in the .npy header", name, key);
  std::string_view rest = header.substr(at + key.size());
  const size_t begin = rest.find_first_not_of(" :");
  if (begin == std::string_view::npos) Fail("{}: the .npy header ends after {}", name, key);
  return rest.substr(begin);
}

std::vector<int64_t> ParseShape(std::string_view text, const std::string& name) {
  const size_t close = text.find(')');
  if (!text.starts_with('(') || close == std::string_view::npos) {
    Fail("{}: the .npy header's shape is not a tuple", name);
  }
  text = text.substr(1, close - 1);
  std::vector<int64_t> shape;
  while (true) {
    const size_t begin = text.find_first_not_of(" ,");
    if (begin == std::string_view::npos) return shape;
    text.remove_prefix(begin);
    int64_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc() || size < 0 || shape.size() == 8) {
      Fail("{}: the .npy header's shape is not one of whole numbers", name);
    }
    shape.push_back(size);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
  }
}

}  // namespace

NpyArray ParseNpy(std::span<const std::byte> bytes, const std::string& name) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic) || text.size() < 12) Fail("{} is not a .npy file", name);
  const int major = static_cast<unsigned char>(text[6]);
  if (major < 1 || major > 3) Fail("{}: .npy format {} is not known", name, major);
  uint32_t length = 0;
  const size_t length_bytes = major == 1 ? 2 : 4;
  std::memcpy(&length, text.data() + 8, length_bytes);
  const size_t begin = 8 + length_bytes;
  if (length > text.size() - begin) Fail("{}: the .npy header is cut short", name);
  const std::string_view header = text.substr(begin, length);
  if (!After(header, "'descr'", name).starts_with("'<f4'")) {
    Fail("{} must hold float32 (descr '<f4'): save it with array.astype('float32')", name);
  }
  if (!After(header, "'fortran_order'", name).starts_with("False")) {
    Fail("{} must be in C order: save numpy.ascontiguousarray(array)", name);
  }
  NpyArray array;
  array.shape = ParseShape(After(header, "'shape'", name), name);
  const std::string_view data = text.substr(begin + length);
  const size_t available = data.size() / sizeof(float);
  size_t elements = 1;
  for (const int64_t size : array.shape) {
    if (size != 0 && elements > available / static_cast<size_t>(size)) {
      Fail("{} is cut short: shape ({}) needs more than its {} numbers", name,
           fmt::join(array.shape, ", "), available);
    }
    elements *= static_cast<size_t>(size);
  }
  if (elements * sizeof(float) != data.size()) {
    Fail("{}: shape ({}) needs {} bytes, the file holds {}", name, fmt::join(array.shape, ", "),
         elements * sizeof(float), data.size());
  }
  array.values.resize(elements);
  std::copy_n(data.data(), data.size(), reinterpret_cast<char*>(array.values.data()));
  return array;
}

void WriteNpy(const std::filesystem::path& path, const std::vector<int64_t>& shape,
              std::span<const float> values) {
  std::string dict = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}{}), }}",
                                 fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  // Header and its preamble end at a multiple of 64 bytes, with a newline.
  dict.resize((10 + dict.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  dict += '\n';
  std::string head(kMagic);
  head += '\x01';
  head += '\x00';
  const auto length = static_cast<uint16_t>(dict.size());
  head.append(reinterpret_cast<const char*>(&length), sizeof length);
  head += dict;
  const std::span<const std::byte> pieces[] = {std::as_bytes(std::span(head)),
                                               std::as_bytes(values)};
  WriteFileAtomically(path, pieces);
}

}  // namespace parax
