#include "parax/cli/flags_internal.h"

namespace parax {

const std::vector<Command>& Commands() {
  static const std::vector<Command> commands = {
      {"train", kTrain, "Train a network on a folder of images",
       "  parax train --data flowers --model resnet18 --epochs 20\n"
       "  parax train --out runs/mine --resume\n"
       "  parax train --config recipes/cifar10-resnet20.toml --data cifar10\n"},
      {"eval", kEval, "Measure a trained network on a folder of images",
       "  parax eval --model runs/mine --data flowers\n"},
      {"predict", kPredict, "Say what is on images",
       "  parax predict --model runs/mine photo.jpg more-photos/\n"
       "  find . -name '*.jpg' | parax predict --model runs/mine --format json -\n"
       "  parax predict --model runs/mine batch.npy --out logits.npy\n"},
      {"plan", kPlan, "Tell what training a network takes, without running it",
       "  parax plan --model resnet152 --micro-batch 8\n"},
      {"tune", kTune, "Time kernels and layouts for a network here, and keep the best",
       "  parax tune --model resnet50 --micro-batch 16\n"},
      {"bench", kBench, "Measure the speed of training or inference on synthetic images",
       "  parax bench --model resnet50 --batch 64\n"
       "  parax bench --model resnet50 --mode infer --instances 1 --cores-per-instance all --batch "
       "1\n"},
      {"sim", kSim, "Simulate training on another machine, or this one, by times measured here",
       "  parax sim --model resnet50 --machine machines/2x28-xeon-8280.toml --sweep\n"
       "  parax sim --model resnet50 --machine this --policy gate\n"},
      {"topo", kTopo, "Show cores, memory and limits as ParaX sees them",
       "  parax topo --advice\n"}};
  return commands;
}

}  // namespace parax
