#include "parax/base/philox.h"

#include <cmath>
#include <numbers>

namespace parax {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    k[0] += 0x9E3779B9;
    k[1] += 0xBB67AE85;
  }
  return c;
}

RandomStream::RandomStream(uint64_t seed, RandomUse use, uint64_t a, uint64_t b) {
  // Two keyed rounds fold (seed, use, a, b) into a key and the upper counter words; the lowest
  // word counts blocks (2^32 blocks = 64 GiB of numbers a stream, more than any use draws).
  const std::array<uint32_t, 2> seed_key = {static_cast<uint32_t>(seed),
                                            static_cast<uint32_t>(seed >> 32)};
  const auto folded = Philox4x32({static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32),
                                  static_cast<uint32_t>(use), 0x50617261},
                                 seed_key);
  key_ = {folded[0], folded[1]};
  counter_ = {0, static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32), folded[2]};
}

uint32_t RandomStream::Next() {
  if (left_ == 0) {
    block_ = Philox4x32(counter_, key_);
    ++counter_[0];
    left_ = 4;
  }
  return block_[4 - left_--];
}

uint64_t RandomStream::Below(uint64_t n) {
  const uint64_t limit = n * (UINT64_MAX / n);  // reject the last, partial range: no modulo bias
  uint64_t draw = Next64();
  while (draw >= limit) draw = Next64();
  return draw % n;
}

double RandomStream::Normal() {
  const double u = 1.0 - Uniform();  // (0, 1]: log stays finite
  const double v = Uniform();
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace parax
