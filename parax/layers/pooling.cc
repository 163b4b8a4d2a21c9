#include <fmt/core.h>

#include <limits>

#include "parax/layers/layers.h"
#include "parax/layers/own_kernel.h"
#include "parax/layers/panels_internal.h"

namespace parax {
namespace {

// The first maximum stays, and so does a NaN.
PARAX_INLINE inline bool Replaces(float value, float best) {
  return static_cast<int>(value > best) | static_cast<int>(value != value);
}

// One pooling, as its kernels capture it. Own kernels: a library's average differs from PyTorch's
// where ceil mode lets a window hang over the padding.
struct Pool {
  Panels in;
  int64_t out_height = 0, out_width = 0;
  int64_t kernel = 1, stride = 1, padding = 0;
  bool include_padding = false;
  Isa isa = Isa::kBaseline;
  int threads = 1;

  int64_t out_floats() const { return out_height * out_width * in.lanes; }

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

  // body(window, offset of the output's pixel in its panel) for every output pixel.
  template <typename Body>
  PARAX_INLINE void ForPixels(Body body) const {
    for (int64_t oy = 0; oy < out_height; ++oy) {
      for (int64_t ox = 0; ox < out_width; ++ox) {
        body(WindowAt(oy, ox), (oy * out_width + ox) * in.lanes);
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
  void MaxForward(const float* x, float* y, int32_t* chosen) const {
    ForPanels([=, *this](int64_t panel) PARAX_INLINE {
      const float* in0 = x + panel * in.panel_floats();
      ForPixels([=, this](const Window& w, int64_t at) PARAX_INLINE {
        float* __restrict best = y + panel * out_floats() + at;
        const int64_t lanes = in.lanes;
        for (int64_t c = 0; c < lanes; ++c) best[c] = -std::numeric_limits<float>::infinity();
        if (chosen == nullptr) {
          ForWindow(w, [=](int64_t from, int32_t) PARAX_INLINE {
            for (int64_t c = 0; c < lanes; ++c) {
              best[c] = Replaces(in0[from + c], best[c]) ? in0[from + c] : best[c];
            }
          });
          return;
        }
        int32_t* __restrict index = chosen + panel * out_floats() + at;
        const int32_t first = static_cast<int32_t>(w.top * in.width_pixels + w.left);
        for (int64_t c = 0; c < lanes; ++c) index[c] = first;
        ForWindow(w, [=](int64_t from, int32_t pixel) PARAX_INLINE {
          for (int64_t c = 0; c < lanes; ++c) {
            const bool replace = Replaces(in0[from + c], best[c]);
            index[c] = replace ? pixel : index[c];
            best[c] = replace ? in0[from + c] : best[c];
          }
        });
      });
    });
  }

  void MaxBackward(const float* dy, const int32_t* chosen, float* dx) const {
    ForPanels([=, *this](int64_t panel) PARAX_INLINE {
      float* out = dx + panel * in.panel_floats();
      std::fill_n(out, in.panel_floats(), 0.0f);
      ForPixels([=, this](const Window& w, int64_t at) PARAX_INLINE {
        const float* __restrict g = dy + panel * out_floats() + at;
        const int32_t* __restrict index = chosen + panel * out_floats() + at;
        const int64_t lanes = in.lanes;
        ForWindow(w, [=](int64_t to, int32_t pixel) PARAX_INLINE {
          float* __restrict d = out + to;
          for (int64_t c = 0; c < lanes; ++c) d[c] += index[c] == pixel ? g[c] : 0.0f;
        });
      });
    });
  }

  void AverageForward(const float* x, float* y) const {
    ForPanels([=, *this](int64_t panel) PARAX_INLINE {
      const float* in0 = x + panel * in.panel_floats();
      ForPixels([=, this](const Window& w, int64_t at) PARAX_INLINE {
        float* __restrict sum = y + panel * out_floats() + at;
        const int64_t lanes = in.lanes;
        for (int64_t c = 0; c < lanes; ++c) sum[c] = 0;
        ForWindow(w, [=](int64_t from, int32_t) PARAX_INLINE {
          for (int64_t c = 0; c < lanes; ++c) sum[c] += in0[from + c];
        });
        const float scale = 1.0f / static_cast<float>(w.cells);
        for (int64_t c = 0; c < lanes; ++c) sum[c] *= scale;
      });
    });
  }

  void AverageBackward(const float* dy, float* dx) const {
    ForPanels([=, *this](int64_t panel) PARAX_INLINE {
      float* out = dx + panel * in.panel_floats();
      std::fill_n(out, in.panel_floats(), 0.0f);
      ForPixels([=, this](const Window& w, int64_t at) PARAX_INLINE {
        const float* __restrict g = dy + panel * out_floats() + at;
        const float scale = 1.0f / static_cast<float>(w.cells);
        const int64_t lanes = in.lanes;
        ForWindow(w, [=](int64_t to, int32_t) PARAX_INLINE {
          float* __restrict d = out + to;
          for (int64_t c = 0; c < lanes; ++c) d[c] += g[c] * scale;
        });
      });
    });
  }

  // Over the whole image, to N x C in channel order.
  void GlobalForward(const float* x, float* y) const {
    const int64_t pixels = in.height * in.width_pixels;
    ForPanels([=, *this](int64_t panel) PARAX_INLINE {
      const float* in0 = x + panel * in.panel_floats();
      const int64_t channel = panel % in.blocks * in.lanes;
      const int64_t lanes = std::min(in.lanes, in.channels - channel);
      float* __restrict out = y + panel / in.blocks * in.channels + channel;
      for (int64_t c = 0; c < lanes; ++c) out[c] = 0;
      for (int64_t p = 0; p < pixels; ++p) {
        const float* __restrict pixel = in0 + p * in.lanes;
        for (int64_t c = 0; c < lanes; ++c) out[c] += pixel[c];
      }
      const float scale = 1.0f / static_cast<float>(pixels);
      for (int64_t c = 0; c < lanes; ++c) out[c] *= scale;
    });
  }

  void GlobalBackward(const float* dy, float* dx) const {
    const int64_t pixels = in.height * in.width_pixels;
    const float scale = 1.0f / static_cast<float>(pixels);
    ForPanels([=, *this](int64_t panel) PARAX_INLINE {
      float* out = dx + panel * in.panel_floats();
      const int64_t channel = panel % in.blocks * in.lanes;
      const int64_t lanes = std::min(in.lanes, in.channels - channel);
      const float* __restrict g = dy + panel / in.blocks * in.channels + channel;
      for (int64_t p = 0; p < pixels; ++p) {
        float* __restrict pixel = out + p * in.lanes;
        for (int64_t c = 0; c < lanes; ++c) pixel[c] = g[c] * scale;
        for (int64_t c = lanes; c < in.lanes; ++c) pixel[c] = 0;
      }
    });
  }
};

enum class PoolKind : uint8_t { kMax, kAverage, kGlobalAverage };

class PoolLayer final : public Layer {
 public:
  PoolLayer(PoolKind kind, const PoolOptions& options) : kind_(kind), options_(options) {
    if (options.kernel < 1 || options.stride < 1 || options.padding < 0 ||
        options.padding > options.kernel / 2) {
      Fail("{}: kernel {}, stride {}, padding {}: the padding can be at most half the kernel",
           this->kind(), options.kernel, options.stride, options.padding);
    }
  }

  std::string Signature() const override {
    return fmt::format("{} kernel {} stride {} padding {}", kind(), options_.kernel,
                       options_.stride, options_.padding);
  }
  std::string kind() const override {
    return kind_ == PoolKind::kMax       ? "max_pool"
           : kind_ == PoolKind::kAverage ? "avg_pool"
                                         : "global_avg_pool";
  }

  Dims OutputDims(const std::vector<Dims>& inputs) const override {
    RequireInputs(*this, inputs, 1);
    const Dims& d = inputs[0];
    if (d.size() != 4) Fail("{}: wants N x C x H x W", kind());
    if (kind_ == PoolKind::kGlobalAverage) return {d[0], d[1]};
    return {d[0], d[1], OutputSize(d[2]), OutputSize(d[3])};
  }

  CompiledLayer Compile(const CompileRequest& request) const override;

 private:
  int64_t OutputSize(int64_t size) const {
    const int64_t room = size + 2 * options_.padding - options_.kernel;
    if (room < 0) Fail("{}: kernel {} is larger than {} pixels", kind(), options_.kernel, size);
    int64_t out = (room + (options_.ceil_mode ? options_.stride - 1 : 0)) / options_.stride + 1;
    // The last window must begin inside the image or the padding before it.
    if (options_.ceil_mode && (out - 1) * options_.stride >= size + options_.padding) --out;
    return out;
  }

  PoolKind kind_;
  PoolOptions options_;
};

CompiledLayer PoolLayer::Compile(const CompileRequest& request) const {
  RequireFloat(*this, request.inputs);
  const Dims out = OutputDims({request.inputs.at(0).dims()});
  Pool pool;
  CompiledLayer compiled;
  compiled.inputs = {UsableLayout(request.inputs[0], pool.in)};
  const bool global = kind_ == PoolKind::kGlobalAverage;
  compiled.output = global ? Layout::Plain(out) : SameArrangement(pool.in, out);
  if (!global) {
    pool.out_height = out[2];
    pool.out_width = out[3];
  }
  pool.kernel = options_.kernel;
  pool.stride = options_.stride;
  pool.padding = options_.padding;
  pool.include_padding = options_.count_include_pad;
  pool.isa = CurrentIsa();
  pool.threads = request.threads;
  const std::string name = fmt::format("parax:{}:{}", kind(), Name(pool.isa));
  const double bytes = static_cast<double>(compiled.inputs[0].bytes()) +
                       static_cast<double>(compiled.output.bytes());
  const bool training = request.mode == Mode::kTraining;
  const bool backward = training && request.need_input_grad.at(0);

  if (kind_ == PoolKind::kMax && training) {
    compiled.saved = {compiled.output.elements() * sizeof(int32_t)};
    compiled.forward = {OwnOp(OpKind::kForward,
                              MakeOwnKernel<3>(name,
                                               [pool](const Addresses<3>& p, const RunContext&) {
                                                 pool.MaxForward(Floats(p[0]), Floats(p[1]),
                                                                 static_cast<int32_t*>(p[2]));
                                                 return Outcome::kOk;
                                               }),
                              {{Role::kInput}, {Role::kOutput, 0, true}, {Role::kSaved, 0, true}},
                              bytes + static_cast<double>(compiled.output.bytes()))};
  } else {
    const PoolKind kind = kind_;
    compiled.forward = {
        OwnOp(OpKind::kForward,
              MakeOwnKernel<2>(name,
                               [pool, kind](const Addresses<2>& p, const RunContext&) {
                                 if (kind == PoolKind::kMax) {
                                   pool.MaxForward(Floats(p[0]), Floats(p[1]), nullptr);
                                 } else if (kind == PoolKind::kAverage) {
                                   pool.AverageForward(Floats(p[0]), Floats(p[1]));
                                 } else {
                                   pool.GlobalForward(Floats(p[0]), Floats(p[1]));
                                 }
                                 return Outcome::kOk;
                               }),
              {{Role::kInput}, {Role::kOutput, 0, true}}, bytes)};
  }
  if (!backward) return compiled;
  if (kind_ == PoolKind::kMax) {
    compiled.backward = {OwnOp(OpKind::kBackwardData,
                               MakeOwnKernel<3>(name,
                                                [pool](const Addresses<3>& p, const RunContext&) {
                                                  pool.MaxBackward(Floats(p[0]),
                                                                   static_cast<int32_t*>(p[1]),
                                                                   Floats(p[2]));
                                                  return Outcome::kOk;
                                                }),
                               {{Role::kOutputGrad}, {Role::kSaved}, {Role::kInputGrad, 0, true}},
                               bytes + static_cast<double>(compiled.output.bytes()))};
  } else {
    compiled.backward = {
        OwnOp(OpKind::kBackwardData,
              MakeOwnKernel<2>(name,
                               [pool, global](const Addresses<2>& p, const RunContext&) {
                                 if (global) {
                                   pool.GlobalBackward(Floats(p[0]), Floats(p[1]));
                                 } else {
                                   pool.AverageBackward(Floats(p[0]), Floats(p[1]));
                                 }
                                 return Outcome::kOk;
                               }),
              {{Role::kOutputGrad}, {Role::kInputGrad, 0, true}}, bytes)};
  }
  return compiled;
}

}  // namespace

LayerPtr MaxPool(const PoolOptions& options) {
  return std::make_shared<PoolLayer>(PoolKind::kMax, options);
}
LayerPtr AvgPool(const PoolOptions& options) {
  return std::make_shared<PoolLayer>(PoolKind::kAverage, options);
}
LayerPtr GlobalAvgPool() {
  return std::make_shared<PoolLayer>(PoolKind::kGlobalAverage, PoolOptions{1, 1, 0, false, true});
}

}  // namespace parax
