// Vectors of bf16, widened to V and rounded from it as BFloat16 does. Included at the end of
// vectors_*_internal.h, inside its namespace. Not vcvtneps2bf16, which flushes denormals: all
// instruction sets are to give the same bits.

using Words = uint32_t __attribute__((vector_size(4 * kLanes)));
using Halves = uint16_t __attribute__((vector_size(2 * kLanes)));

PARAX_TARGET inline V Load(const BFloat16* from) {
  Halves halves;
  __builtin_memcpy(&halves, from, sizeof halves);
  return reinterpret_cast<V>(__builtin_convertvector(halves, Words) << 16);
}

PARAX_TARGET inline void Store(BFloat16* to, V value) {
  const Words u = reinterpret_cast<Words>(value);
  const Words rounded = u + 0x7fff + ((u >> 16) & 1);
  const Words nan = reinterpret_cast<Words>(value != value);
  const Words result = (nan & (u | 0x400000)) | (~nan & rounded);
  const Halves halves = __builtin_convertvector(result >> 16, Halves);
  __builtin_memcpy(static_cast<void*>(to), &halves, sizeof halves);
}
