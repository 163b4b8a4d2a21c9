#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "parax/layers/batch_norm_kernels_internal.h"

// A batch norm's forward and backward over whole activations, on the instance's threads.
namespace parax {

// scale[c] = weight[c] / sqrt(variance[c] + epsilon).
void NormScale(const float* weight, const float* variance, double epsilon, int64_t channels,
               float* scale);

// What the kernels capture.
struct NormPasses {
  NormShape shape;
  Isa isa = Isa::kBaseline;
  int threads = 1;
  double epsilon = 0;
  bool relu = false;
  bool fixed = false;  // the statistics do not depend on x

  struct Forward {
    const float *x, *residual, *weight, *bias;  // residual may be null
    float *mean, *variance;                     // written unless `fixed`
    float* y;
    uint8_t* bits;  // written where not null: for backward
    float* scratch;
  };
  void Run(const Forward& pass) const;

  struct Backward {
    const float *x, *dy, *weight, *bias, *mean, *variance;
    uint8_t* bits;                // null without a residual: the mask is computed anew
    float* dresidual;             // null: not wanted; may be dy
    float *dx, *dweight, *dbias;  // null: not wanted
    float* scratch;
  };
  void Run(const Backward& pass) const;

  size_t scratch_bytes() const {
    return (kCoefficients + kPiece * static_cast<size_t>(pieces())) * row() * sizeof(float);
  }
  size_t bit_bytes() const {
    return static_cast<size_t>(shape.images * shape.blocks * shape.rows *
                               NormBitBytes(shape.width));
  }

 private:
  // Scratch of a pass, in floats: five coefficient rows, then for each piece of images two rows of
  // double sums and three of float sums of a block.
  static constexpr size_t kCoefficients = 5, kSums = 2, kPiece = 2 * kSums + 3;
  size_t row() const {
    return static_cast<size_t>((shape.padded() + kNormGroup - 1) / kNormGroup * kNormGroup);
  }
  int64_t pieces() const { return std::min<int64_t>(threads, shape.images); }
  float* coefficients(float* scratch, size_t i) const { return scratch + i * row(); }
  double* sums(float* scratch, int64_t piece, size_t i) const {
    float* base = scratch + (kCoefficients + kPiece * static_cast<size_t>(piece)) * row();
    return reinterpret_cast<double*>(base) + i * row();
  }
  float* partial(float* scratch, int64_t piece) const {
    return scratch + (kCoefficients + kPiece * static_cast<size_t>(piece) + 2 * kSums) * row();
  }
  template <typename Work>
  void ForImages(const Work& work) const;
  void Statistics(const Forward& pass) const;
  NormRows Coefficients(const float* x, const float* weight, const float* bias, const float* mean,
                        const float* variance, float* scratch) const;
  void Sums(const NormRows& all, float* scratch) const;
};

}  // namespace parax
