#include <algorithm>

#include "parax/layers/batch_norm_kernels_internal.h"

namespace parax {
namespace {

// Rows whose sum is kept in float before it goes into a double.
constexpr int64_t kFloatRows = 256;

// Calls body(offset of the panel's first element, its first channel).
template <typename Body>
PARAX_INLINE inline void ForPanels(const NormShape& s, int64_t begin, int64_t end, Body body) {
  for (int64_t image = begin; image < end; ++image) {
    for (int64_t block = 0; block < s.blocks; ++block) {
      body((image * s.blocks + block) * s.rows * s.width, block * s.width);
    }
  }
}

// sum[c] += term(i, c) over all elements i of channel c. Four rows are added at once, which saves
// traffic on the partial sums.
template <typename Term>
PARAX_INLINE inline void SumTerms(const NormShape& s, int64_t begin, int64_t end, double* sum,
                                  float* partial, Term term) {
  const int64_t width = s.width;
  ForPanels(s, begin, end, [=](int64_t at, int64_t channel) PARAX_INLINE {
    for (int64_t row = 0; row < s.rows; row += kFloatRows) {
      const int64_t last = std::min(s.rows, row + kFloatRows);
      for (int64_t c = 0; c < width; ++c) partial[c] = 0;
      int64_t r = row;
      for (; r + 4 <= last; r += 4) {
        const int64_t i = at + r * width;
        for (int64_t c = 0; c < width; ++c) {
          partial[c] +=
              (term(i + c, channel + c) + term(i + width + c, channel + c)) +
              (term(i + 2 * width + c, channel + c) + term(i + 3 * width + c, channel + c));
        }
      }
      for (; r < last; ++r) {
        const int64_t i = at + r * width;
        for (int64_t c = 0; c < width; ++c) partial[c] += term(i + c, channel + c);
      }
      for (int64_t c = 0; c < width; ++c) sum[channel + c] += static_cast<double>(partial[c]);
    }
  });
}

}  // namespace

void NormSum(Isa isa, const NormShape& s, const float* __restrict x, int64_t begin, int64_t end,
             double* __restrict sum, float* __restrict partial) {
  RunAtIsa(isa, [=]() PARAX_INLINE {
    SumTerms(s, begin, end, sum, partial, [=](int64_t i, int64_t) PARAX_INLINE { return x[i]; });
  });
}

void NormSumSquares(Isa isa, const NormShape& s, const float* __restrict x,
                    const float* __restrict mean, int64_t begin, int64_t end,
                    double* __restrict sum, float* __restrict partial) {
  RunAtIsa(isa, [=]() PARAX_INLINE {
    SumTerms(s, begin, end, sum, partial, [=](int64_t i, int64_t c) PARAX_INLINE {
      const float d = x[i] - mean[c];
      return d * d;
    });
  });
}

void NormApply(Isa isa, const NormShape& s, const float* x, const float* mean, const float* scale,
               const float* bias, bool relu, int64_t begin, int64_t end, float* y) {
  RunAtIsa(isa, [=]() PARAX_INLINE {
    const float floor = relu ? 0.0f : -__builtin_inff();
    ForPanels(s, begin, end, [=](int64_t at, int64_t channel) PARAX_INLINE {
      for (int64_t r = 0; r < s.rows; ++r) {
        const float* __restrict in = x + at + r * s.width;
        float* __restrict out = y + at + r * s.width;
        for (int64_t c = 0; c < s.width; ++c) {
          const float v = (in[c] - mean[channel + c]) * scale[channel + c] + bias[channel + c];
          out[c] = v < floor ? floor : v;  // NaN stays NaN
        }
      }
    });
  });
}

void NormGradientSums(Isa isa, const NormShape& s, const float* __restrict x,
                      const float* __restrict y, const float* __restrict dy,
                      const float* __restrict mean, int64_t begin, int64_t end,
                      double* __restrict sum_dy, double* __restrict sum_dyx,
                      float* __restrict partial, float* __restrict partial_x) {
  const float* mask = y == nullptr ? dy : y;
  const float below = y == nullptr ? -__builtin_inff() : 0.0f;  // dy counts where mask > below
  const bool masked = y != nullptr;
  RunAtIsa(isa, [=]() PARAX_INLINE {
    const int64_t width = s.width;
    ForPanels(s, begin, end, [=](int64_t at, int64_t channel) PARAX_INLINE {
      for (int64_t row = 0; row < s.rows; row += kFloatRows) {
        const int64_t last = std::min(s.rows, row + kFloatRows);
        for (int64_t c = 0; c < width; ++c) partial[c] = partial_x[c] = 0;
        for (int64_t r = row; r < last; ++r) {
          const int64_t i = at + r * width;
          for (int64_t c = 0; c < width; ++c) {
            const float g = !masked || mask[i + c] > below ? dy[i + c] : 0.0f;
            partial[c] += g;
            partial_x[c] += g * (x[i + c] - mean[channel + c]);
          }
        }
        for (int64_t c = 0; c < width; ++c) {
          sum_dy[channel + c] += static_cast<double>(partial[c]);
          sum_dyx[channel + c] += static_cast<double>(partial_x[c]);
        }
      }
    });
  });
}

void NormInputGradient(Isa isa, const NormShape& s, const float* x, const float* y, const float* dy,
                       const float* mean, const float* a, const float* b, const float* c,
                       int64_t begin, int64_t end, float* dx) {
  const bool masked = y != nullptr;
  const float* mask = masked ? y : dy;
  RunAtIsa(isa, [=]() PARAX_INLINE {
    ForPanels(s, begin, end, [=](int64_t at, int64_t channel) PARAX_INLINE {
      const float* __restrict m0 = mean + channel;
      const float* __restrict a0 = a + channel;
      const float* __restrict b0 = b + channel;
      const float* __restrict c0 = c + channel;
      for (int64_t r = 0; r < s.rows; ++r) {
        const int64_t i = at + r * s.width;
        for (int64_t k = 0; k < s.width; ++k) {
          const float g = !masked || mask[i + k] > 0.0f ? dy[i + k] : 0.0f;
          dx[i + k] = g * a0[k] + ((x[i + k] - m0[k]) * b0[k] + c0[k]);
        }
      }
    });
  });
}

}  // namespace parax
