#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parax/engine/graph.h"

namespace parax {

// What network to build. Names: those of ModelNames(), torchvision's and, for CIFAR's resnet20 ...
// resnet110, https://github.com/akamaster/pytorch_resnet_cifar10; or any ImageNet-style ResNet as
// "resnet:basic|bottleneck:BLOCKS[:WIDTH[:GROUPS]]", such as "resnet:bottleneck:3,4,6,3:4:32" for
// resnext50_32x4d; WIDTH is torchvision's width_per_group, 64 when not given.
struct ModelSpec {
  std::string name;
  int64_t classes = 0;     // 0: the model's own (1000 or 10)
  int64_t image_size = 0;  // 0: the model's own (224 or 32)
  int64_t channels = 3;
  double dropout = 0;               // before the last linear layer
  bool freeze_norm = false;         // batch norms use their running statistics in training too
  bool zero_init_residual = false;  // the last norm of each residual branch starts at zero
};

// What its images go through before the network, in evaluation.
struct Preprocessing {
  int64_t resize = 0;               // the shorter side
  int64_t crop = 0;                 // the centre's square
  std::vector<float> mean, stddev;  // one a channel, of values 0 to 1
};

std::vector<std::string> ModelNames();

// Both throw UsageError for an unknown name, naming the nearest one. Tensors have the published
// names ("layer1.0.conv1.weight", "fc.bias"; CIFAR: "linear.bias").
Graph BuildModel(const ModelSpec& spec);
Preprocessing DefaultPreprocessing(const ModelSpec& spec);

// The spec with the model's own sizes in place of zeros.
ModelSpec Resolved(ModelSpec spec);

}  // namespace parax
