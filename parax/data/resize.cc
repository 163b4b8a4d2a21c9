#include "parax/data/resize.h"

#include <algorithm>
#include <cmath>

#include "parax/data/resize_internal.h"

namespace parax {
namespace {

double Support(Interpolation interpolation) {
  return interpolation == Interpolation::kBicubic ? 2.0 : 1.0;
}

double Filter(Interpolation interpolation, double x) {
  x = std::abs(x);
  if (interpolation == Interpolation::kBilinear) return std::max(0.0, 1.0 - x);
  constexpr double a = -0.5;  // Keys' cubic convolution
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
  return x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * a : 0.0;
}

// Source pixels of outputs [offset, offset + window), before clipping to the image.
void Extent(double low, double high, int size, int offset, int window, double support, int& first,
            int& last) {
  const double scale = (high - low) / size;
  const double reach = support * std::max(1.0, scale) + 2;
  const int begin = std::clamp(offset, 0, size);
  const int end = std::clamp(offset + window, begin, size);
  first = static_cast<int>(std::floor(std::max(low, low + begin * scale - reach)));
  last = static_cast<int>(std::ceil(std::min(high, low + end * scale + reach)));
}

}  // namespace

DecodeHint NeededRegion(const ResizeJob& job, int image_width, int image_height) {
  const double support = Support(job.interpolation);
  int left, right, top, bottom;
  Extent(job.x0, job.x1, job.width, job.left, job.window_width, support, left, right);
  Extent(job.y0, job.y1, job.height, job.top, job.window_height, support, top, bottom);
  left = std::clamp(left, 0, image_width - 1);
  top = std::clamp(top, 0, image_height - 1);
  right = std::clamp(right, left + 1, image_width);
  bottom = std::clamp(bottom, top + 1, image_height);
  return {.left = left, .top = top, .width = right - left, .height = bottom - top};
}

// After Pillow's precompute_coeffs, which this follows step by step.
void MakeTaps(double low, double high, int source, int size, int offset, int window, bool reverse,
              Interpolation interpolation, Resizer::Taps& taps) {
  const int lowest = std::max(0, static_cast<int>(std::floor(low)));
  const int highest = std::min(source, static_cast<int>(std::ceil(high)));
  const double scale = (high - low) / size;
  const double stretch = std::max(1.0, scale);
  const double support = Support(interpolation) * stretch;
  const int most = static_cast<int>(std::ceil(support)) * 2 + 2;
  taps.first.assign(window, lowest);
  taps.exact.assign(size_t(window) * most, 0.0);
  taps.count = 2;
  taps.begin = highest;
  taps.end = lowest;
  double largest = 0;
  for (int i = 0; i < window; ++i) {
    const int at = offset + (reverse ? window - 1 - i : i);
    if (at < 0 || at >= size) continue;  // padding: all weights stay zero
    const double center = low + (at + 0.5) * scale;
    const int first = std::max(lowest, static_cast<int>(std::floor(center - support + 0.5)));
    const int end = std::min(highest, static_cast<int>(std::floor(center + support + 0.5)));
    double* weights = &taps.exact[size_t(i) * most];
    double sum = 0;
    for (int k = first; k < end; ++k) {
      weights[k - first] = Filter(interpolation, (k - center + 0.5) / stretch);
      sum += weights[k - first];
    }
    int used = 0;
    for (int k = 0; k < end - first; ++k) {
      weights[k] /= sum;
      largest = std::max(largest, std::abs(weights[k]));
      if (weights[k] != 0) used = k + 1;
    }
    taps.first[i] = first;
    taps.count = std::max(taps.count, (used + 1) / 2 * 2);
    taps.begin = std::min(taps.begin, first);
    taps.end = std::max(taps.end, first + used);
  }
  if (taps.begin >= taps.end) taps.begin = taps.end = lowest;  // nothing but padding
  // As many fraction bits as the largest weight leaves of 16; sums of 255 * weight fit 32 bits.
  taps.shift = 14;
  while (taps.shift < 20 && largest * (2 << taps.shift) < 32767) ++taps.shift;
  taps.weights.assign(size_t(window) * taps.count, 0);
  for (int i = 0; i < window; ++i) {
    // At the far edge the taps start earlier, so that those of weight zero stay inside as well.
    const int over = std::max(0, taps.first[i] + taps.count - highest);
    const int back = std::clamp(taps.first[i] - taps.begin, 0, over);
    taps.first[i] -= back;
    int16_t* weights = &taps.weights[size_t(i) * taps.count];
    for (int k = 0; k + back < taps.count && k < most; ++k) {
      weights[k + back] =
          static_cast<int16_t>(std::lround(taps.exact[size_t(i) * most + k] * (1 << taps.shift)));
    }
  }
}

void Resizer::Horizontal(const Image& image, const ResizeJob& job) {
  MakeTaps(job.x0, job.x1, image.width, job.width, job.left, job.window_width, job.flip,
           job.interpolation, columns_);
  MakeTaps(job.y0, job.y1, image.height, job.height, job.top, job.window_height, false,
           job.interpolation, rows_);
  // Room behind each line: kernels store four bytes a pixel.
  stride_ = ptrdiff_t{3} * job.window_width + kKernelRoom;
  const int rows = rows_.end - rows_.begin;
  // The vertical pass reads up to `count` rows of weight zero behind the last.
  const size_t needed = stride_ * (rows + rows_.count);
  if (narrow_.size() < needed) narrow_.resize(needed);
  const size_t source_bytes = size_t{3} * image.width * image.height;
  const bool room = image.pixels.size() >= source_bytes + kKernelRoom;
  const ResizeKernels& kernels = room ? ChosenKernels() : kPortableKernels;
  kernels.columns(image.row(rows_.begin), ptrdiff_t{3} * image.width, rows, columns_,
                  narrow_.data(), stride_);
}

void Resizer::Line(int y, int bytes, uint8_t* out) const {
  const int first = std::clamp(rows_.first[y], rows_.begin, rows_.end) - rows_.begin;
  ChosenKernels().row(narrow_.data() + stride_ * first, stride_,
                      &rows_.weights[size_t(y) * rows_.count], rows_.count, rows_.shift, bytes,
                      out);
}

void Resizer::Run(const Image& image, const ResizeJob& job, uint8_t* out) {
  Horizontal(image, job);
  const int bytes = 3 * job.window_width;
  for (int y = 0; y < job.window_height; ++y) Line(y, bytes, out + ptrdiff_t{bytes} * y);
}

void Resizer::Run(const Image& image, const ResizeJob& job, const float scale[3],
                  const float shift[3], float* out) {
  Horizontal(image, job);
  const int bytes = 3 * job.window_width;
  line_.resize(bytes);
  for (int y = 0; y < job.window_height; ++y) {
    Line(y, bytes, line_.data());
    Normalize(line_.data(), bytes, scale, shift, out + ptrdiff_t{bytes} * y);
  }
}

void Normalize(const uint8_t* bytes, int64_t n, const float scale[3], const float shift[3],
               float* out) {
  ChosenKernels().normalize(bytes, n, scale, shift, out);
}

}  // namespace parax
