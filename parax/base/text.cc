#include "parax/base/text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "parax/base/error.h"

namespace parax {
namespace {

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] != b[j - 1] ? 1 : 0);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

// Bytes of the character that `text` begins with; 0 when that is not UTF-8.
size_t FirstCharacter(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t length = lead < 0x80   ? 1
                        : lead < 0xC2 ? 0
                        : lead < 0xE0 ? 2
                        : lead < 0xF0 ? 3
                        : lead < 0xF5 ? 4
                                      : 0;
  if (length == 0 || length > text.size()) return 0;
  uint32_t code = length == 1 ? lead : lead & (0x7Fu >> length);
  for (size_t k = 1; k < length; ++k) {
    const auto byte = static_cast<unsigned char>(text[k]);
    if ((byte & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte & 0x3Fu);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  return overlong || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? 0 : length;
}

}  // namespace

std::string HumanBytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < std::size(kUnits)) {
    bytes /= 1000;
    ++unit;
  }
  const int decimals = unit == 0 || bytes >= 99.5 ? 0 : bytes >= 9.95 ? 1 : 2;
  return fmt::format("{:.{}f} {}", bytes, decimals, kUnits[unit]);
}

std::string HumanTime(double seconds) {
  const auto total = static_cast<int64_t>(std::max(0.0, seconds) + 0.5);
  if (total >= 3600) return fmt::format("{} h {:02} min", total / 3600, total / 60 % 60);
  if (total >= 60) return fmt::format("{} min {:02} s", total / 60, total % 60);
  return fmt::format("{} s", total);
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = FirstCharacter(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string Printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t length = FirstCharacter(text);
    const auto lead = static_cast<unsigned char>(text[0]);
    // Two bytes of the C1 controls: U+009B begins an escape code too.
    const bool control = (length == 1 && (lead < 0x20 || lead == 0x7F)) ||
                         (lead == 0xC2 && length == 2 && (text[1] & 0xE0) == 0x80);
    if (length > 0 && !control) {
      result += text.substr(0, length);
    } else if (lead == '\n' || lead == '\t') {
      result += lead == '\n' ? "\\n" : "\\t";
    } else {
      for (const char c : text.substr(0, std::max<size_t>(length, 1))) {
        result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
      }
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return result;
}

std::string Nearest(std::string_view word, std::span<const std::string> candidates) {
  const std::string* best = nullptr;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(word, candidate);
    if (distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  return best == nullptr ? std::string() : *best;
}

size_t ChoiceOf(std::string_view what, std::string_view name, std::span<const std::string> names,
                std::string_view likely) {
  const auto it = std::ranges::find(names, name);
  if (it == names.end()) {
    const std::string nearest = Nearest(name, names);
    FailUsage("unknown {} '{}': did you mean '{}'? Known: {}", what, name,
              nearest.empty() ? likely : nearest, fmt::join(names, ", "));
  }
  return static_cast<size_t>(it - names.begin());
}

}  // namespace parax
