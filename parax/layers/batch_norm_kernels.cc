#include <algorithm>

#include "parax/layers/batch_norm_kernels_internal.h"

namespace parax {
namespace {

// Rows whose sums are kept in float before they go into doubles. A block of them stays in the
// second level cache between its two passes.
constexpr int64_t kBlockRows = 256;

// Calls body(offset of the block's first element, its rows, its first channel).
template <typename Body>
PARAX_INLINE inline void ForBlocks(const NormShape& s, int64_t begin, int64_t end, Body body) {
  for (int64_t image = begin; image < end; ++image) {
    for (int64_t block = 0; block < s.blocks; ++block) {
      const int64_t panel = (image * s.blocks + block) * s.rows * s.width;
      for (int64_t row = 0; row < s.rows; row += kBlockRows) {
        body(panel + row * s.width, std::min(kBlockRows, s.rows - row), block * s.width);
      }
    }
  }
}

// partial[c] = sum of term(i, c) over the block's rows. Four rows are added at once, which saves
// traffic on the partial sums.
template <typename Term>
PARAX_INLINE inline void SumRows(int64_t width, int64_t at, int64_t rows, float* __restrict partial,
                                 Term term) {
  for (int64_t c = 0; c < width; ++c) partial[c] = 0;
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const int64_t i = at + r * width;
    for (int64_t c = 0; c < width; ++c) {
      partial[c] += (term(i + c, c) + term(i + width + c, c)) +
                    (term(i + 2 * width + c, c) + term(i + 3 * width + c, c));
    }
  }
  for (; r < rows; ++r) {
    const int64_t i = at + r * width;
    for (int64_t c = 0; c < width; ++c) partial[c] += term(i + c, c);
  }
}

// dy where the output of forward's ReLU is above zero.
PARAX_INLINE inline float Masked(float x, float mean, float scale, float bias, float dy) {
  return (x - mean) * scale + bias > 0.0f ? dy : 0.0f;
}

}  // namespace

void NormMoments(Isa isa, const NormShape& s, const float* __restrict x, int64_t begin, int64_t end,
                 double* __restrict count, double* __restrict mean, double* __restrict m2,
                 double* __restrict exact, float* __restrict partial,
                 float* __restrict block_mean) {
  RunAtIsa(isa, [=]() PARAX_INLINE {
    const int64_t width = s.width;
    ForBlocks(s, begin, end, [=](int64_t at, int64_t rows, int64_t channel) PARAX_INLINE {
      SumRows(width, at, rows, partial, [=](int64_t i, int64_t) PARAX_INLINE { return x[i]; });
      const double n = static_cast<double>(rows);
      for (int64_t c = 0; c < width; ++c) {
        exact[c] = static_cast<double>(partial[c]) / n;
        block_mean[c] = static_cast<float>(exact[c]);
      }
      SumRows(width, at, rows, partial, [=](int64_t i, int64_t c) PARAX_INLINE {
        const float d = x[i] - block_mean[c];
        return d * d;
      });
      for (int64_t c = 0; c < width; ++c) {
        const int64_t k = channel + c;
        const double rounding = static_cast<double>(block_mean[c]) - exact[c];
        const double deviations = static_cast<double>(partial[c]) - n * rounding * rounding;
        const double all = count[k] + n;
        const double delta = exact[c] - mean[k];
        m2[k] += deviations + delta * delta * count[k] * n / all;
        mean[k] += delta * n / all;
        count[k] = all;
      }
    });
  });
}

void NormApply(Isa isa, const NormShape& s, const float* x, const float* mean, const float* scale,
               const float* bias, bool relu, int64_t begin, int64_t end, float* y) {
  RunAtIsa(isa, [=]() PARAX_INLINE {
    const float floor = relu ? 0.0f : -__builtin_inff();
    ForBlocks(s, begin, end, [=](int64_t at, int64_t rows, int64_t channel) PARAX_INLINE {
      const float* __restrict m = mean + channel;
      const float* __restrict a = scale + channel;
      const float* __restrict b = bias + channel;
      for (int64_t r = 0; r < rows; ++r) {
        const float* in = x + at + r * s.width;
        float* out = y + at + r * s.width;
        for (int64_t c = 0; c < s.width; ++c) {
          const float v = (in[c] - m[c]) * a[c] + b[c];
          out[c] = v < floor ? floor : v;  // NaN stays NaN
        }
      }
    });
  });
}

void NormGradientSums(Isa isa, const NormShape& s, const NormForward& f, const float* __restrict dy,
                      int64_t begin, int64_t end, double* __restrict sum_dy,
                      double* __restrict sum_dyx, float* __restrict partial,
                      float* __restrict partial_x) {
  RunAtIsa(isa, [=]() PARAX_INLINE {
    const int64_t width = s.width;
    const bool relu = f.relu;
    const float* __restrict x = f.x;
    ForBlocks(s, begin, end, [=](int64_t at, int64_t rows, int64_t channel) PARAX_INLINE {
      const float* __restrict m = f.mean + channel;
      const float* __restrict a = f.scale + channel;
      const float* __restrict b = f.bias + channel;
      for (int64_t c = 0; c < width; ++c) partial[c] = partial_x[c] = 0;
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t i = at + r * width;
        for (int64_t c = 0; c < width; ++c) {
          const float g = relu ? Masked(x[i + c], m[c], a[c], b[c], dy[i + c]) : dy[i + c];
          partial[c] += g;
          partial_x[c] += g * (x[i + c] - m[c]);
        }
      }
      for (int64_t c = 0; c < width; ++c) {
        sum_dy[channel + c] += static_cast<double>(partial[c]);
        sum_dyx[channel + c] += static_cast<double>(partial_x[c]);
      }
    });
  });
}

void NormInputGradient(Isa isa, const NormShape& s, const NormForward& f, const float* dy,
                       const float* slope, const float* shift, int64_t begin, int64_t end,
                       float* dx) {
  RunAtIsa(isa, [=]() PARAX_INLINE {
    const bool relu = f.relu;
    ForBlocks(s, begin, end, [=](int64_t at, int64_t rows, int64_t channel) PARAX_INLINE {
      const float* __restrict m = f.mean + channel;
      const float* __restrict a = f.scale + channel;
      const float* __restrict b = f.bias + channel;
      const float* __restrict k = slope + channel;
      const float* __restrict d = shift + channel;
      const float* __restrict x = f.x;
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t i = at + r * s.width;
        for (int64_t c = 0; c < s.width; ++c) {
          const float g = relu ? Masked(x[i + c], m[c], a[c], b[c], dy[i + c]) : dy[i + c];
          dx[i + c] = g * a[c] + ((x[i + c] - m[c]) * k[c] + d[c]);
        }
      }
    });
  });
}

}  // namespace parax
