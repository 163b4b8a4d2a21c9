#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace parax {

// A fast 64-bit hash against accidents, not against attackers: 8 bytes a step, mixed by folding the
// 128-bit product (the construction of wyhash).
inline uint64_t Hash64(std::span<const std::byte> bytes, uint64_t seed = 0) {
  __extension__ using Wide = unsigned __int128;
  const auto mix = [](uint64_t a, uint64_t b) {
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  uint64_t hash = seed ^ 0xa0761d6478bd642full;
  const std::byte* p = bytes.data();
  size_t left = bytes.size();
  for (; left > 0;) {
    uint64_t word = 0;
    const size_t n = left < 8 ? left : 8;
    std::memcpy(&word, p, n);
    hash = mix(hash ^ word, 0xe7037ed1a0b428dbull) + word;
    p += n;
    left -= n;
  }
  return mix(hash ^ 0x8ebc6af09c88c6e3ull, bytes.size() ^ 0x589965cc75374cc3ull);
}

inline uint64_t Hash64(std::string_view text, uint64_t seed = 0) {
  return Hash64(std::as_bytes(std::span(text.data(), text.size())), seed);
}

}  // namespace parax
