#pragma once

#include <memory>
#include <vector>

#include "parax/layers/layer.h"

// The layers, as PyTorch defines them (torch.nn, 2.x): same parameters, same defaults.
namespace parax {

using LayerPtr = std::shared_ptr<const Layer>;

struct ConvOptions {
  int64_t in_channels = 0, out_channels = 0;
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1, groups = 1;
  bool bias = false;
};
// Params: weight [out, in/groups, kernel, kernel] (Kaiming fan-out), bias [out] if any.
LayerPtr Conv(const ConvOptions& options);

struct BatchNormOptions {
  int64_t channels = 0;
  double epsilon = 1e-5;
  bool add = false;     // a second input, the residual: y = bn(x) + residual
  bool relu = false;    // y = max(0, bn(x) (+ residual)), fused
  bool frozen = false;  // running statistics in training too; they do not change
  bool zero_init_scale = false;
};
// Params: weight (ones), bias (zeros); states: running_mean, running_var.
LayerPtr BatchNorm(const BatchNormOptions& options);

LayerPtr Relu();

struct PoolOptions {
  int64_t kernel = 2, stride = 2, padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;  // average pooling only
};
LayerPtr MaxPool(const PoolOptions& options);  // ties: the first maximum gets the gradient
LayerPtr AvgPool(const PoolOptions& options);
LayerPtr GlobalAvgPool();  // N,C,H,W -> N,C
LayerPtr Linear(int64_t in, int64_t out,
                bool bias = true);  // N,in -> N,out; params weight [out,in], bias
LayerPtr Add(bool relu = false);    // two inputs of equal dims; relu fused when asked
// CIFAR ResNet's option A shortcut: every `stride`-th pixel, zero channels added on both sides:
// `before` in front, the rest up to `channels` behind.
LayerPtr ChannelPad(int64_t channels, int64_t before, int64_t stride);
LayerPtr Flatten();  // N,C,H,W -> N,C*H*W in (C,H,W) order
LayerPtr Dropout(double probability,
                 uint32_t layer_number);  // scaled by 1/(1-p); off in evaluation

struct LossOptions {
  int64_t classes = 0;
  double label_smoothing = 0;
  std::vector<float> class_weights = {};  // empty: all one
  bool probabilities = false;             // targets are probability vectors, not class indices
};
// Softmax cross-entropy. Gradient and loss are SUMS over images, not means. In evaluation mode:
// loss and hits only, and images labelled -1 (class unknown) count for nothing. The output is the
// softmax [N, classes].
LayerPtr SoftmaxCrossEntropy(const LossOptions& options);

}  // namespace parax
