#pragma once

#include <memory>
#include <optional>
#include <string>

#include "parax/layers/own_kernel.h"

// Batch norm with fixed statistics in the kernel that makes its input: what a convolution does to
// a value before it stores it.
namespace parax {

// y = relu?((value - mean) * scale + bias (+ residual)), in this order and without fused
// multiply-adds: the bits of a batch norm behind the convolution.
struct Finish {
  const float *mean, *scale, *bias;  // one a channel
  const float* residual;             // null: none; arranged as y
  const float* y;                    // where the output begins
  bool relu;
};

struct FinishOptions {
  bool add = false, relu = false;
};

// The kernel of `pass`, a convolution with a Run(x, weights, y, const Finish*, scratch). Arguments:
// x, weights, y, scratch; finished: x, weights, y, mean, scale, bias, residual (where none is
// added: anything), scratch.
template <typename Pass>
std::shared_ptr<const Kernel> MakeFinished(const std::string& name, const Pass& pass,
                                           const std::optional<FinishOptions>& options) {
  const size_t scratch_bytes = pass.scratch_floats() * sizeof(float);
  if (!options.has_value()) {
    const auto run = [pass](const Addresses<4>& p, const RunContext&) {
      return pass.Run(Floats(p[0]), Floats(p[1]), Floats(p[2]), nullptr, Floats(p[3]));
    };
    return MakeOwnKernel<4>(name, run, scratch_bytes);
  }
  const auto run = [pass, o = *options](const Addresses<8>& p, const RunContext&) {
    const Finish finish = {Floats(p[3]), Floats(p[4]), Floats(p[5]), o.add ? Floats(p[6]) : nullptr,
                           Floats(p[2]), o.relu};
    return pass.Run(Floats(p[0]), Floats(p[1]), Floats(p[2]), &finish, Floats(p[7]));
  };
  return MakeOwnKernel<8>(name, run, scratch_bytes);
}

inline constexpr char kNormScaleName[] = "parax:norm_scale";
// scale[c] = weight[c] / sqrt(variance[c] + epsilon). Arguments: weight, variance, scale.
std::shared_ptr<const Kernel> MakeNormScale(int64_t channels, double epsilon);

}  // namespace parax
