#pragma once

#include "parax/layers/layers.h"
#include "tests/layers/harness.h"

// Layers written as the textbook's loops in double precision: what the kernels are compared with.
namespace parax::testing {

struct ReferenceGrads {
  Values input, weight, bias;
};

Values ReferenceConv(const ConvOptions& o, const Dims& in, const Values& x, const Values& weight,
                     const Values& bias, const Dims& out);
ReferenceGrads ReferenceConvBackward(const ConvOptions& o, const Dims& in, const Values& x,
                                     const Values& weight, const Dims& out, const Values& dy);

// PyTorch's definitions of ceil_mode and count_include_pad.
Values ReferencePool(bool max, const PoolOptions& o, const Dims& in, const Values& x,
                     const Dims& out);
Values ReferencePoolBackward(bool max, const PoolOptions& o, const Dims& in, const Values& x,
                             const Dims& out, const Values& dy);

struct ReferenceNorm {
  Values y, dx, dscale, dshift, mean, variance;
};
// Statistics from x itself, or given ones (frozen) when `mean` is not empty.
ReferenceNorm ReferenceBatchNorm(const Dims& in, const Values& x, const Values& scale,
                                 const Values& shift, double epsilon, bool relu, const Values& dy,
                                 const Values& mean = {}, const Values& variance = {});

}  // namespace parax::testing
