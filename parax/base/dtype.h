#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace parax {

enum class DType : uint8_t { kF32, kBF16, kI64, kI32, kU8 };

constexpr size_t SizeOf(DType type) {
  switch (type) {
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
      return 2;
    case DType::kU8:
      return 1;
  }
  return 0;
}

std::string_view Name(DType type);

// The upper half of an IEEE float; rounds to nearest even, keeps NaN a NaN. Loops convert at every
// load and store, so both ways are inlined and without branches.
class BFloat16 {
 public:
  BFloat16() = default;
  [[gnu::always_inline]] explicit BFloat16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = u + 0x7fffu + ((u >> 16) & 1u);
    const bool is_nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits_ = static_cast<uint16_t>((is_nan ? u | 0x400000u : rounded) >> 16);
  }
  [[gnu::always_inline]] explicit operator float() const {
    return std::bit_cast<float>(uint32_t{bits_} << 16);
  }
  uint16_t bits() const { return bits_; }

 private:
  uint16_t bits_ = 0;
};
static_assert(sizeof(BFloat16) == 2);

// use(float()) or use(BFloat16()): the type that tensors of real numbers are stored as.
template <typename Use>
decltype(auto) WithElement(DType type, const Use& use) {
  return type == DType::kBF16 ? use(BFloat16()) : use(float());
}

}  // namespace parax
