#include "tests/layers/reference.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace parax::testing {
namespace {

using Doubles = std::vector<double>;

Values ToFloat(const Doubles& values) { return Values(values.begin(), values.end()); }

size_t At(const Dims& dims, int64_t a, int64_t b, int64_t c, int64_t d) {
  return static_cast<size_t>(((a * dims[1] + b) * dims[2] + c) * dims[3] + d);
}

// Calls f(index of y, index of x, index of weight, output channel) for every product that a
// convolution sums.
void ForEachProduct(const ConvOptions& o, const Dims& in, const Dims& out,
                    const std::function<void(size_t, size_t, size_t, size_t)>& f) {
  const int64_t group_in = o.in_channels / o.groups, group_out = o.out_channels / o.groups;
  const Dims weight = {o.out_channels, group_in, o.kernel, o.kernel};
  for (int64_t n = 0; n < out[0]; ++n)
    for (int64_t c = 0; c < out[1]; ++c)
      for (int64_t h = 0; h < out[2]; ++h)
        for (int64_t w = 0; w < out[3]; ++w)
          for (int64_t i = 0; i < group_in; ++i)
            for (int64_t kh = 0; kh < o.kernel; ++kh)
              for (int64_t kw = 0; kw < o.kernel; ++kw) {
                const int64_t y = h * o.stride - o.padding + kh * o.dilation;
                const int64_t x = w * o.stride - o.padding + kw * o.dilation;
                if (y < 0 || y >= in[2] || x < 0 || x >= in[3]) continue;
                f(At(out, n, c, h, w), At(in, n, c / group_out * group_in + i, y, x),
                  At(weight, c, i, kh, kw), static_cast<size_t>(c));
              }
}

// What one pooling window covers, cut to the image, and what an average divides by.
struct Window {
  int64_t h0, h1, w0, w1, divisor;
};

Window WindowAt(const PoolOptions& o, const Dims& in, int64_t h, int64_t w) {
  const int64_t top = h * o.stride - o.padding, left = w * o.stride - o.padding;
  const int64_t bottom = std::min(top + o.kernel, in[2] + o.padding);
  const int64_t right = std::min(left + o.kernel, in[3] + o.padding);
  Window window = {std::max<int64_t>(top, 0), std::min(bottom, in[2]), std::max<int64_t>(left, 0),
                   std::min(right, in[3]), (bottom - top) * (right - left)};
  if (!o.count_include_pad) window.divisor = (window.h1 - window.h0) * (window.w1 - window.w0);
  return window;
}

void ForEachWindow(const PoolOptions& o, const Dims& in, const Dims& out,
                   const std::function<void(size_t, const Window&, int64_t, int64_t)>& f) {
  for (int64_t n = 0; n < out[0]; ++n)
    for (int64_t c = 0; c < out[1]; ++c)
      for (int64_t h = 0; h < out[2]; ++h)
        for (int64_t w = 0; w < out[3]; ++w) f(At(out, n, c, h, w), WindowAt(o, in, h, w), n, c);
}

size_t FirstMaximum(const Window& window, const Dims& in, const Values& x, int64_t n, int64_t c) {
  size_t best = At(in, n, c, window.h0, window.w0);
  for (int64_t h = window.h0; h < window.h1; ++h)
    for (int64_t w = window.w0; w < window.w1; ++w)
      if (x[At(in, n, c, h, w)] > x[best]) best = At(in, n, c, h, w);
  return best;
}

}  // namespace

Values ReferenceConv(const ConvOptions& o, const Dims& in, const Values& x, const Values& weight,
                     const Values& bias, const Dims& out) {
  Doubles y(static_cast<size_t>(Product(out)));
  const size_t plane = static_cast<size_t>(out[2] * out[3]), channels = static_cast<size_t>(out[1]);
  if (o.bias)
    for (size_t i = 0; i < y.size(); ++i) y[i] = bias[i / plane % channels];
  ForEachProduct(o, in, out, [&](size_t to, size_t from, size_t k, size_t) {
    y[to] += double{x[from]} * weight[k];
  });
  return ToFloat(y);
}

ReferenceGrads ReferenceConvBackward(const ConvOptions& o, const Dims& in, const Values& x,
                                     const Values& weight, const Dims& out, const Values& dy) {
  Doubles dx(x.size()), dw(weight.size()), db(static_cast<size_t>(o.out_channels));
  ForEachProduct(o, in, out, [&](size_t to, size_t from, size_t k, size_t) {
    dx[from] += double{dy[to]} * weight[k];
    dw[k] += double{dy[to]} * x[from];
  });
  const size_t plane = static_cast<size_t>(out[2] * out[3]);
  for (size_t i = 0; i < dy.size(); ++i) db[i / plane % db.size()] += dy[i];
  return {ToFloat(dx), ToFloat(dw), ToFloat(db)};
}

Values ReferencePool(bool max, const PoolOptions& o, const Dims& in, const Values& x,
                     const Dims& out) {
  Doubles y(static_cast<size_t>(Product(out)));
  ForEachWindow(o, in, out, [&](size_t to, const Window& window, int64_t n, int64_t c) {
    if (max) {
      y[to] = x[FirstMaximum(window, in, x, n, c)];
      return;
    }
    for (int64_t h = window.h0; h < window.h1; ++h)
      for (int64_t w = window.w0; w < window.w1; ++w) y[to] += x[At(in, n, c, h, w)];
    y[to] /= static_cast<double>(window.divisor);
  });
  return ToFloat(y);
}

Values ReferencePoolBackward(bool max, const PoolOptions& o, const Dims& in, const Values& x,
                             const Dims& out, const Values& dy) {
  Doubles dx(x.size());
  ForEachWindow(o, in, out, [&](size_t from, const Window& window, int64_t n, int64_t c) {
    if (max) {
      dx[FirstMaximum(window, in, x, n, c)] += dy[from];
      return;
    }
    for (int64_t h = window.h0; h < window.h1; ++h)
      for (int64_t w = window.w0; w < window.w1; ++w)
        dx[At(in, n, c, h, w)] += dy[from] / static_cast<double>(window.divisor);
  });
  return ToFloat(dx);
}

// Ioffe and Szegedy, "Batch normalization" (ICML 2015), with the biased variance.
ReferenceNorm ReferenceBatchNorm(const Dims& in, const Values& x, const Values& scale,
                                 const Values& shift, double epsilon, bool relu, const Values& dy,
                                 const Values& mean, const Values& variance) {
  const size_t channels = static_cast<size_t>(in[1]);
  const size_t plane = static_cast<size_t>(Product(in) / in[0] / in[1]);
  const auto channel = [&](size_t i) { return i / plane % channels; };
  const double count = static_cast<double>(x.size() / channels);
  Doubles m(mean.begin(), mean.end()), v(variance.begin(), variance.end());
  const bool batch = mean.empty();
  if (batch) {
    m.assign(channels, 0);
    v.assign(channels, 0);
    for (size_t i = 0; i < x.size(); ++i) m[channel(i)] += x[i] / count;
    for (size_t i = 0; i < x.size(); ++i)
      v[channel(i)] += std::pow(x[i] - m[channel(i)], 2) / count;
  }
  Doubles y(x.size()), dx(x.size()), normal(x.size()), g(x.size()), dscale(channels),
      dshift(channels);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = channel(i);
    normal[i] = (x[i] - m[c]) / std::sqrt(v[c] + epsilon);
    y[i] = normal[i] * scale[c] + shift[c];
    g[i] = relu && y[i] <= 0 ? 0 : dy[i];
    if (relu) y[i] = std::max(y[i], 0.0);
    dscale[c] += g[i] * normal[i];
    dshift[c] += g[i];
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = channel(i);
    const double centred = batch ? g[i] - (dshift[c] + normal[i] * dscale[c]) / count : g[i];
    dx[i] = scale[c] / std::sqrt(v[c] + epsilon) * centred;
  }
  return {ToFloat(y), ToFloat(dx), ToFloat(dscale), ToFloat(dshift), ToFloat(m), ToFloat(v)};
}

}  // namespace parax::testing
