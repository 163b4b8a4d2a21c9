#pragma once
// The inner loops of resizing, one set an instruction set; tests compare them bit by bit.

#include <cstddef>
#include <cstdint>

#include "parax/data/resize.h"

namespace parax {

// `columns` reads up to this many bytes behind the last source pixel, and writes up to this many
// behind each line.
inline constexpr int kKernelRoom = 32;

struct ResizeKernels {
  const char* name;
  // Horizontal pass of `rows` rows of RGB.
  void (*columns)(const uint8_t* source, ptrdiff_t source_stride, int rows,
                  const Resizer::Taps& taps, uint8_t* out, ptrdiff_t out_stride);
  // One line of the vertical pass: weighted sum of `count` (even) rows of `bytes` bytes.
  void (*row)(const uint8_t* source, ptrdiff_t stride, const int16_t* weights, int count, int shift,
              int bytes, uint8_t* out);
  void (*normalize)(const uint8_t* bytes, int64_t n, const float scale[3], const float shift[3],
                    float* out);
};

extern const ResizeKernels kPortableKernels;
extern const ResizeKernels kAvx2Kernels;
// The best for this CPU; ONEDNN_MAX_CPU_ISA (SSE41, AVX) caps it as it caps oneDNN.
const ResizeKernels& ChosenKernels();

// Coefficients of one axis: the box [low, high) of `source` pixels becomes `size`; the window
// starts at `offset` of it and has `window` outputs.
void MakeTaps(double low, double high, int source, int size, int offset, int window, bool reverse,
              Interpolation interpolation, Resizer::Taps& taps);

}  // namespace parax
