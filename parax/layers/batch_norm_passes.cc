#include <cmath>

#include "parax/layers/batch_norm_passes_internal.h"

namespace parax {
namespace {

// Rows that a pass without sums takes at once: few, so that it goes through memory in order where
// rows are wider than a strip, and enough to keep coefficients in registers.
constexpr int64_t kStreamRows = 16;

// `all`, whose pointers are those of whole activations, at one block.
NormRows At(const NormRows& all, const NormBlock& block) {
  NormRows b = all;
  b.rows = block.rows;
  for (const float** p : {&b.mean, &b.scale, &b.bias, &b.slope, &b.shift}) {
    if (*p != nullptr) *p += block.channel;
  }
  for (const float** p : {&b.x, &b.residual, &b.dy}) {
    if (*p != nullptr) *p += block.at;
  }
  if (b.out != nullptr) b.out += block.at;
  if (b.bits != nullptr) b.bits += block.row * NormBitBytes(b.width);
  return b;
}

}  // namespace

void NormScale(const float* weight, const float* variance, double epsilon, int64_t channels,
               float* scale) {
  for (int64_t c = 0; c < channels; ++c) {
    scale[c] =
        static_cast<float>(weight[c] / std::sqrt(static_cast<double>(variance[c]) + epsilon));
  }
}

// work(piece, first image, last image) on the instance's threads; the cut depends on their number
// only.
template <typename Work>
void NormPasses::ForImages(const Work& work) const {
  const int64_t n = pieces();
  if (n == 1) return work(int64_t{0}, int64_t{0}, shape.images);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t p = 0; p < n; ++p) work(p, shape.images * p / n, shape.images * (p + 1) / n);
}

// Last to first: the layer before has left its last images in the caches. The next layer then finds
// the first ones there no longer, but a convolution has time to fetch them.
void NormPasses::Statistics(const Forward& pass) const {
  ForImages([&](int64_t piece, int64_t begin, int64_t end) {
    double* const mean = sums(pass.scratch, piece, 0);
    double* const m2 = sums(pass.scratch, piece, 1);
    std::fill_n(mean, kSums * row(), 0.0);
    ForNormBlocks(shape, begin, end, kNormBlockRows, true, [&](const NormBlock& b) {
      AddMoments(isa, pass.x + b.at, shape.width, b.rows, shape.width, b.before,
                 {mean + b.channel, m2 + b.channel}, partial(pass.scratch, piece));
    });
  });
  for (size_t c = 0; c < static_cast<size_t>(shape.channels); ++c) {
    double count = 0, centre = 0, m2 = 0;
    for (int64_t p = 0; p < pieces(); ++p) {  // in order: as in AddMoments
      const int64_t images = shape.images * (p + 1) / pieces() - shape.images * p / pieces();
      const double n = static_cast<double>(images * shape.rows);
      const double delta = sums(pass.scratch, p, 0)[c] - centre;
      m2 += sums(pass.scratch, p, 1)[c] + delta * delta * count * n / (count + n);
      centre += delta * n / (count + n);
      count += n;
    }
    pass.mean[c] = static_cast<float>(centre);
    pass.variance[c] = static_cast<float>(std::max(0.0, m2 / count));  // rounding can go below
  }
}

// Fills coefficient rows 0 to 2 with mean, scale and bias; padding lanes stay zero.
NormRows NormPasses::Coefficients(const float* x, const float* weight, const float* bias,
                                  const float* mean, const float* variance, float* scratch) const {
  float* centre = coefficients(scratch, 0);
  float* scale = coefficients(scratch, 1);
  float* offset = coefficients(scratch, 2);
  std::fill_n(scratch, kCoefficients * row(), 0.0f);
  std::copy_n(mean, shape.channels, centre);
  std::copy_n(bias, shape.channels, offset);
  NormScale(weight, variance, epsilon, shape.channels, scale);
  NormRows rows;
  rows.width = rows.stride = shape.width;
  rows.relu = relu;
  rows.mean = centre;
  rows.scale = scale;
  rows.bias = offset;
  rows.x = x;
  return rows;
}

void NormPasses::Run(const Forward& pass) const {
  if (!fixed) Statistics(pass);
  NormRows all =
      Coefficients(pass.x, pass.weight, pass.bias, pass.mean, pass.variance, pass.scratch);
  all.residual = pass.residual;
  all.bits = pass.bits;
  all.out = pass.y;
  const NormLoops& loops = NormLoopsFor(isa);
  // First to last, as the statistics have left the first images in the caches.
  ForImages([&](int64_t, int64_t begin, int64_t end) {
    ForNormBlocks(shape, begin, end, kStreamRows, false,
                  [&](const NormBlock& b) { loops.apply(At(all, b)); });
  });
}

// Last to first, as in Statistics: every piece's sums of g and g * (x - mean), and g itself if
// `all` has an output.
void NormPasses::Sums(const NormRows& all, float* scratch) const {
  const NormLoops& loops = NormLoopsFor(isa);
  ForImages([&](int64_t piece, int64_t begin, int64_t end) {
    double* const sum = sums(scratch, piece, 0);
    double* const dot = sums(scratch, piece, 1);
    float* const block_sum = partial(scratch, piece);
    float* const block_dot = block_sum + row();
    std::fill_n(sum, kSums * row(), 0.0);
    ForNormBlocks(shape, begin, end, kNormBlockRows, true, [&](const NormBlock& b) {
      loops.sums(At(all, b), block_sum, block_dot);
      for (int64_t c = 0; c < shape.width; ++c) {
        sum[b.channel + c] += static_cast<double>(block_sum[c]);
        dot[b.channel + c] += static_cast<double>(block_dot[c]);
      }
    });
  });
}

void NormPasses::Run(const Backward& pass) const {
  NormRows all =
      Coefficients(pass.x, pass.weight, pass.bias, pass.mean, pass.variance, pass.scratch);
  all.dy = pass.dy;
  all.bits = pass.bits;
  if (pass.dweight != nullptr || !fixed || pass.dresidual != nullptr) {
    all.out = pass.dresidual;
    Sums(all, pass.scratch);
  }
  float* slope = coefficients(pass.scratch, 3);
  float* shift = coefficients(pass.scratch, 4);
  for (size_t c = 0; c < static_cast<size_t>(shape.channels); ++c) {
    if (pass.dweight == nullptr && fixed) break;
    double sum = 0, dot = 0;
    for (int64_t p = 0; p < pieces(); ++p) {
      sum += sums(pass.scratch, p, 0)[c];
      dot += sums(pass.scratch, p, 1)[c];
    }
    const double inverse = 1.0 / std::sqrt(static_cast<double>(pass.variance[c]) + epsilon);
    if (pass.dweight != nullptr) {
      pass.dbias[c] = static_cast<float>(sum);
      pass.dweight[c] = static_cast<float>(dot * inverse);
    }
    if (fixed) continue;
    // dx = scale (g - mean(g) - xhat mean(g xhat)), with xhat = (x - mean) inverse.
    slope[c] = static_cast<float>(-all.scale[c] * dot * inverse * inverse / shape.values());
    shift[c] = static_cast<float>(-all.scale[c] * sum / shape.values());
  }
  if (pass.dx == nullptr) return;
  if (pass.dresidual != nullptr) {  // g
    all.dy = pass.dresidual;
    all.relu = false;
  }
  all.slope = slope;
  all.shift = shift;
  all.out = pass.dx;
  const NormLoops& loops = NormLoopsFor(isa);
  ForImages([&](int64_t, int64_t begin, int64_t end) {  // first to last, as in forward
    ForNormBlocks(shape, begin, end, kStreamRows, false,
                  [&](const NormBlock& b) { loops.input_gradient(At(all, b)); });
  });
}

}  // namespace parax
