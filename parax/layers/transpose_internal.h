#pragma once

#include <xmmintrin.h>

#include <cstdint>

namespace parax {

// to[c][r] = from[r][c]; rows and columns are multiples of 4, rows of `from` and `to` lie
// `from_row` and `to_row` floats apart.
inline void Transpose(const float* from, int64_t from_row, int64_t rows, int64_t columns, float* to,
                      int64_t to_row) {
  for (int64_t c = 0; c < columns; c += 4) {
    for (int64_t r = 0; r < rows; r += 4) {
      const float* in = from + r * from_row + c;
      float* out = to + c * to_row + r;
      __m128 a = _mm_loadu_ps(in), b = _mm_loadu_ps(in + from_row);
      __m128 d = _mm_loadu_ps(in + 2 * from_row), e = _mm_loadu_ps(in + 3 * from_row);
      _MM_TRANSPOSE4_PS(a, b, d, e);
      _mm_storeu_ps(out, a);
      _mm_storeu_ps(out + to_row, b);
      _mm_storeu_ps(out + 2 * to_row, d);
      _mm_storeu_ps(out + 3 * to_row, e);
    }
  }
}

}  // namespace parax
