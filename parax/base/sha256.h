#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace parax {

// SHA-256 (FIPS 180-4) of bytes that arrive piece by piece.
class Sha256 {
 public:
  void Update(std::span<const std::byte> bytes);
  // The digest of everything so far as 64 lowercase hexadecimal digits. Call once, last.
  std::string Finish();

 private:
  void Block(const uint8_t* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> pending_{};
  size_t pending_size_ = 0;
  uint64_t total_ = 0;  // bytes
};

std::string Sha256Of(std::string_view text);  // its digest, as Finish gives it

}  // namespace parax
