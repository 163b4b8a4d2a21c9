#include <immintrin.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <string>

#include "parax/data/resize_internal.h"

namespace parax {
namespace {

uint8_t Round(int sum, int shift) {
  return static_cast<uint8_t>(std::clamp((sum + (1 << (shift - 1))) >> shift, 0, 255));
}

void ColumnsPortable(const uint8_t* source, ptrdiff_t source_stride, int rows,
                     const Resizer::Taps& taps, uint8_t* out, ptrdiff_t out_stride) {
  const int outputs = static_cast<int>(taps.first.size());
  for (int y = 0; y < rows; ++y, source += source_stride, out += out_stride) {
    for (int i = 0; i < outputs; ++i) {
      const uint8_t* pixel = source + ptrdiff_t{3} * taps.first[i];
      const int16_t* weights = &taps.weights[size_t(i) * taps.count];
      int sum[3] = {0, 0, 0};
      for (int k = 0; k < taps.count; ++k) {
        if (weights[k] == 0) continue;  // may lie behind the image
        for (int c = 0; c < 3; ++c) sum[c] += weights[k] * pixel[3 * k + c];
      }
      for (int c = 0; c < 3; ++c) out[3 * i + c] = Round(sum[c], taps.shift);
    }
  }
}

void RowPortable(const uint8_t* source, ptrdiff_t stride, const int16_t* weights, int count,
                 int shift, int bytes, uint8_t* out) {
  for (int x = 0; x < bytes; ++x) {
    int sum = 0;
    for (int k = 0; k < count; ++k) sum += weights[k] * source[k * stride + x];
    out[x] = Round(sum, shift);
  }
}

void NormalizePortable(const uint8_t* bytes, int64_t n, const float scale[3], const float shift[3],
                       float* out) {
  for (int64_t i = 0; i < n; i += 3) {
    for (int c = 0; c < 3; ++c) out[i + c] = static_cast<float>(bytes[i + c]) * scale[c] + shift[c];
  }
}

#define PARAX_AVX2 __attribute__((target("avx2")))

int Load32(const void* from) {
  int value;
  std::memcpy(&value, from, 4);
  return value;
}

// Two rows at once, one in each 128-bit lane; two pixels of both a step: their bytes are spread to
// 16-bit pairs (r0 r1, g0 g1, b0 b1) that one multiply-add takes with a pair of weights.
PARAX_AVX2 void TwoRows(const uint8_t* upper, const uint8_t* lower, const Resizer::Taps& taps,
                        uint8_t* upper_out, uint8_t* lower_out) {
  const __m256i spread = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
  const __m256i half = _mm256_set1_epi32(1 << (taps.shift - 1));
  const __m128i shift = _mm_cvtsi32_si128(taps.shift);
  const int outputs = static_cast<int>(taps.first.size());
  const int16_t* weights = taps.weights.data();
  for (int i = 0; i < outputs; ++i) {
    const ptrdiff_t at = ptrdiff_t{3} * taps.first[i];
    __m256i sum = half;
    for (int k = 0; k < taps.count; k += 2, weights += 2) {
      const __m128i a = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(upper + at + 3 * k));
      const __m128i b = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(lower + at + 3 * k));
      const __m256i pixels = _mm256_shuffle_epi8(_mm256_set_m128i(b, a), spread);
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pixels, _mm256_set1_epi32(Load32(weights))));
    }
    sum = _mm256_sra_epi32(sum, shift);
    sum = _mm256_packus_epi16(_mm256_packs_epi32(sum, sum), sum);
    // Four bytes are stored for three: the fourth is overwritten by the next pixel.
    const int a = _mm256_extract_epi32(sum, 0), b = _mm256_extract_epi32(sum, 4);
    std::memcpy(upper_out + 3 * i, &a, 4);
    std::memcpy(lower_out + 3 * i, &b, 4);
  }
}

PARAX_AVX2 void ColumnsAvx2(const uint8_t* source, ptrdiff_t source_stride, int rows,
                            const Resizer::Taps& taps, uint8_t* out, ptrdiff_t out_stride) {
  for (int y = 0; y < rows; y += 2) {
    const bool pair = y + 1 < rows;  // an odd last row is done twice, in both lanes
    TwoRows(source, pair ? source + source_stride : source, taps, out,
            pair ? out + out_stride : out);
    source += 2 * source_stride;
    out += 2 * out_stride;
  }
}

PARAX_AVX2 void RowAvx2(const uint8_t* source, ptrdiff_t stride, const int16_t* weights, int count,
                        int shift, int bytes, uint8_t* out) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i half = _mm256_set1_epi32(1 << (shift - 1));
  const __m128i shift_by = _mm_cvtsi32_si128(shift);
  int x = 0;
  for (; x + 32 <= bytes; x += 32) {
    __m256i sum[4] = {half, half, half, half};
    for (int k = 0; k < count; k += 2) {
      const uint8_t* at = source + k * stride + x;
      const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
      const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + stride));
      const __m256i pair = _mm256_set1_epi32(Load32(weights + k));
      const __m256i low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
      const __m256i pixels[4] = {_mm256_unpacklo_epi8(low, zero), _mm256_unpackhi_epi8(low, zero),
                                 _mm256_unpacklo_epi8(high, zero),
                                 _mm256_unpackhi_epi8(high, zero)};
      for (int i = 0; i < 4; ++i) {
        sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(pixels[i], pair));
      }
    }
    for (__m256i& s : sum) s = _mm256_sra_epi32(s, shift_by);
    // Packing undoes the lane order of unpacking.
    const __m256i packed =
        _mm256_packus_epi16(_mm256_packs_epi32(sum[0], sum[1]), _mm256_packs_epi32(sum[2], sum[3]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + x), packed);
  }
  RowPortable(source + x, stride, weights, count, shift, bytes - x, out + x);
}

PARAX_AVX2 void NormalizeAvx2(const uint8_t* bytes, int64_t n, const float scale[3],
                              const float shift[3], float* out) {
  // Eight pixels are three vectors; each starts at another channel.
  __m256 scales[3], shifts[3];
  for (int v = 0; v < 3; ++v) {
    float s[8], t[8];
    for (int i = 0; i < 8; ++i) {
      s[i] = scale[(8 * v + i) % 3];
      t[i] = shift[(8 * v + i) % 3];
    }
    scales[v] = _mm256_loadu_ps(s);
    shifts[v] = _mm256_loadu_ps(t);
  }
  int64_t i = 0;
  for (; i + 24 <= n; i += 24) {
    for (int v = 0; v < 3; ++v) {
      const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes + i + 8 * v));
      const __m256 value = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(eight));
      // Not a fused multiply-add: the portable kernel must give the same bits.
      _mm256_storeu_ps(out + i + 8 * v, _mm256_add_ps(_mm256_mul_ps(value, scales[v]), shifts[v]));
    }
  }
  NormalizePortable(bytes + i, n - i, scale, shift, out + i);
}

const ResizeKernels& Choose() {
  const char* cap = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (cap == nullptr) cap = std::getenv("DNNL_MAX_CPU_ISA");
  std::string isa = cap == nullptr ? "" : cap;
  for (char& c : isa) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const bool capped = isa == "SSE41" || isa == "AVX";
  return __builtin_cpu_supports("avx2") && !capped ? kAvx2Kernels : kPortableKernels;
}

}  // namespace

const ResizeKernels kPortableKernels = {"portable", ColumnsPortable, RowPortable,
                                        NormalizePortable};
const ResizeKernels kAvx2Kernels = {"avx2", ColumnsAvx2, RowAvx2, NormalizeAvx2};

const ResizeKernels& ChosenKernels() {
  static const ResizeKernels& chosen = Choose();
  return chosen;
}

}  // namespace parax
