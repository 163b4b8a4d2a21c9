#pragma once

#include <algorithm>
#include <limits>

#include "parax/layers/own_kernel.h"
#include "parax/layers/panels_internal.h"

// The loops of pooling, over activations of float32 or bf16; sums are float32.
namespace parax {

// The first maximum stays, and so does a NaN.
PARAX_INLINE inline bool Replaces(float value, float best) {
  return static_cast<int>(value > best) | static_cast<int>(value != value);
}

// One pooling, as its kernels capture it. Own kernels: a library's average differs from PyTorch's
// where ceil mode lets a window hang over the padding. Backward gathers: each pixel of the input
// adds up what the windows over it send, and is written once.
struct Pool {
  Panels in;
  int64_t out_height = 0, out_width = 0;
  int64_t kernel = 1, stride = 1, padding = 0;
  bool include_padding = false;
  Isa isa = Isa::kBaseline;
  int threads = 1;

  static constexpr int64_t kStrip = 64;  // channels whose sums are kept at hand
  // What sums begin with: it leaves zeros their sign, and GCC makes no slow memset of it.
  static constexpr float kNothing = -0.0f;

  int64_t out_elements() const { return out_height * out_width * in.lanes; }

  struct Window {
    int64_t top, bottom, left, right;  // inside the image
    int64_t cells;                     // what an average divides by
  };
  PARAX_INLINE Window WindowAt(int64_t oy, int64_t ox) const {
    const int64_t y = oy * stride - padding;
    const int64_t x = ox * stride - padding;
    // With the padding, but never beyond it (PyTorch's avg_pool2d).
    const int64_t y_end = std::min(y + kernel, in.height + padding);
    const int64_t x_end = std::min(x + kernel, in.width_pixels + padding);
    Window w = {std::max<int64_t>(y, 0), std::min(y_end, in.height), std::max<int64_t>(x, 0),
                std::min(x_end, in.width_pixels), 0};
    w.cells = include_padding ? (y_end - y) * (x_end - x) : (w.bottom - w.top) * (w.right - w.left);
    return w;
  }
  // Windows [first, last) of one dimension that `pixel` lies in.
  PARAX_INLINE void Over(int64_t pixel, int64_t out, int64_t& first, int64_t& last) const {
    const int64_t begin = pixel + padding - kernel + 1;
    first = begin <= 0 ? 0 : (begin + stride - 1) / stride;
    last = std::min(out, (pixel + padding) / stride + 1);
  }

  // body(panel) for every panel, on the instance's threads.
  template <typename Body>
  void ForPanels(Body body) const {
    ForPieces(threads, static_cast<size_t>(in.images * in.blocks), 1,
              [&](size_t begin, size_t end) {
                RunAtIsa(isa, [=]() PARAX_INLINE {
                  for (size_t p = begin; p < end; ++p) body(static_cast<int64_t>(p));
                });
              });
  }
  // body(first channel, channels) for all of `lanes`. A whole strip's count is known to the
  // compiler, which then keeps its sums in registers.
  template <typename Body>
  PARAX_INLINE static void ForStrips(int64_t lanes, Body body) {
    int64_t c = 0;
    for (; c + kStrip <= lanes; c += kStrip) body(c, kStrip);
    if (c < lanes) body(c, lanes - c);
  }

  // body(window, offset of the output's first channel, first channel, channels) for every output
  // pixel and strip.
  template <typename Body>
  PARAX_INLINE void ForOutputs(Body body) const {
    for (int64_t oy = 0; oy < out_height; ++oy) {
      for (int64_t ox = 0; ox < out_width; ++ox) {
        const Window w = WindowAt(oy, ox);
        ForStrips(in.lanes, [=, this](int64_t c, int64_t n) PARAX_INLINE {
          body(w, (oy * out_width + ox) * in.lanes + c, c, n);
        });
      }
    }
  }
  // body(offset of the input's pixel in its panel, its number) for every pixel of a window.
  template <typename Body>
  PARAX_INLINE void ForWindow(const Window& w, Body body) const {
    for (int64_t y = w.top; y < w.bottom; ++y) {
      for (int64_t x = w.left; x < w.right; ++x) {
        const int64_t pixel = y * in.width_pixels + x;
        body(pixel * in.lanes, static_cast<int32_t>(pixel));
      }
    }
  }

  // `chosen`: pixel of the first maximum, for backward; null in evaluation. NaN wins.
  template <typename T>
  void MaxForward(const T* x, T* y, int32_t* chosen) const {
    ForPanels([=, *this](int64_t panel) PARAX_INLINE {
      const T* in0 = x + panel * in.panel_elements();
      T* out0 = y + panel * out_elements();
      int32_t* index0 = chosen == nullptr ? nullptr : chosen + panel * out_elements();
      ForOutputs([=, this](const Window& w, int64_t at, int64_t first, int64_t n) PARAX_INLINE {
        float best[kStrip];
        int32_t index[kStrip];
        const int32_t corner = static_cast<int32_t>(w.top * in.width_pixels + w.left);
        for (int64_t c = 0; c < n; ++c) best[c] = -std::numeric_limits<float>::infinity();
        for (int64_t c = 0; c < n; ++c) index[c] = corner;
        ForWindow(w, [&, in0](int64_t from, int32_t pixel) PARAX_INLINE {
          const T* __restrict v = in0 + from + first;
          for (int64_t c = 0; c < n; ++c) {
            const float value = float(v[c]);
            const bool replace = Replaces(value, best[c]);
            index[c] = replace ? pixel : index[c];
            best[c] = replace ? value : best[c];
          }
        });
        for (int64_t c = 0; c < n; ++c) out0[at + c] = T(best[c]);
        if (index0 != nullptr) std::copy_n(index, n, index0 + at);
      });
    });
  }

  template <typename T>
  void AverageForward(const T* x, T* y) const {
    ForPanels([=, *this](int64_t panel) PARAX_INLINE {
      const T* in0 = x + panel * in.panel_elements();
      T* out0 = y + panel * out_elements();
      ForOutputs([=, this](const Window& w, int64_t at, int64_t first, int64_t n) PARAX_INLINE {
        float sum[kStrip];
        std::fill_n(sum, n, kNothing);
        ForWindow(w, [&, in0](int64_t from, int32_t) PARAX_INLINE {
          const T* __restrict v = in0 + from + first;
          for (int64_t c = 0; c < n; ++c) sum[c] += float(v[c]);
        });
        const float scale = 1.0f / static_cast<float>(w.cells);
        for (int64_t c = 0; c < n; ++c) out0[at + c] = T(sum[c] * scale);
      });
    });
  }

  // dx of every pixel: the sum of term(window, offset of its output, pixel, sum) over its windows.
  template <typename T, typename Term>
  PARAX_INLINE void Gather(T* dx, Term term) const {
    for (int64_t pixel = 0; pixel < in.height * in.width_pixels; ++pixel) {
      int64_t top = 0, bottom = 0, left = 0, right = 0;
      Over(pixel / in.width_pixels, out_height, top, bottom);
      Over(pixel % in.width_pixels, out_width, left, right);
      ForStrips(in.lanes, [=, this](int64_t first, int64_t n) PARAX_INLINE {
        float sum[kStrip];
        std::fill_n(sum, n, kNothing);
        for (int64_t oy = top; oy < bottom; ++oy) {
          for (int64_t ox = left; ox < right; ++ox) {
            const int64_t at = (oy * out_width + ox) * in.lanes + first;
            term(WindowAt(oy, ox), at, static_cast<int32_t>(pixel), sum, n);
          }
        }
        T* __restrict d = dx + pixel * in.lanes + first;
        for (int64_t c = 0; c < n; ++c) d[c] = T(sum[c]);
      });
    }
  }

  template <typename T>
  void MaxBackward(const T* dy, const int32_t* chosen, T* dx) const {
    ForPanels([=, *this](int64_t panel) PARAX_INLINE {
      const T* from = dy + panel * out_elements();
      const int32_t* chosen0 = chosen + panel * out_elements();
      Gather(dx + panel * in.panel_elements(), [=](const Window&, int64_t at, int32_t pixel,
                                                   float* __restrict sum, int64_t n) PARAX_INLINE {
        const T* __restrict g = from + at;
        const int32_t* __restrict index = chosen0 + at;
        for (int64_t c = 0; c < n; ++c) sum[c] += index[c] == pixel ? float(g[c]) : 0.0f;
      });
    });
  }

  template <typename T>
  void AverageBackward(const T* dy, T* dx) const {
    ForPanels([=, *this](int64_t panel) PARAX_INLINE {
      const T* from = dy + panel * out_elements();
      Gather(dx + panel * in.panel_elements(), [=](const Window& w, int64_t at, int32_t,
                                                   float* __restrict sum, int64_t n) PARAX_INLINE {
        const T* __restrict g = from + at;
        const float scale = 1.0f / static_cast<float>(w.cells);
        for (int64_t c = 0; c < n; ++c) sum[c] += float(g[c]) * scale;
      });
    });
  }

  // Over the whole image, to N x C in channel order.
  template <typename T>
  void GlobalForward(const T* x, T* y) const {
    const int64_t pixels = in.height * in.width_pixels;
    ForPanels([=, *this](int64_t panel) PARAX_INLINE {
      const int64_t channel = panel % in.blocks * in.lanes;
      T* out = y + panel / in.blocks * in.channels + channel;
      const float scale = 1.0f / static_cast<float>(pixels);
      ForStrips(std::min(in.lanes, in.channels - channel),
                [=, this](int64_t first, int64_t n) PARAX_INLINE {
                  float sum[kStrip];
                  std::fill_n(sum, n, kNothing);
                  const T* from = x + panel * in.panel_elements() + first;
                  for (int64_t p = 0; p < pixels; ++p, from += in.lanes) {
                    for (int64_t c = 0; c < n; ++c) sum[c] += float(from[c]);
                  }
                  for (int64_t c = 0; c < n; ++c) out[first + c] = T(sum[c] * scale);
                });
    });
  }

  template <typename T>
  void GlobalBackward(const T* dy, T* dx) const {
    const int64_t pixels = in.height * in.width_pixels;
    const float scale = 1.0f / static_cast<float>(pixels);
    ForPanels([=, *this](int64_t panel) PARAX_INLINE {
      T* out = dx + panel * in.panel_elements();
      const int64_t channel = panel % in.blocks * in.lanes;
      const int64_t lanes = std::min(in.lanes, in.channels - channel);
      const T* __restrict g = dy + panel / in.blocks * in.channels + channel;
      for (int64_t p = 0; p < pixels; ++p) {
        T* __restrict pixel = out + p * in.lanes;
        for (int64_t c = 0; c < lanes; ++c) pixel[c] = T(float(g[c]) * scale);
        for (int64_t c = lanes; c < in.lanes; ++c) pixel[c] = T(0.0f);
      }
    });
  }
};

}  // namespace parax
