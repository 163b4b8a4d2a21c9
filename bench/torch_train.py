"""Trains a ResNet on synthetic images with PyTorch and prints images/s: one measurement of
train_vs_pytorch.py, in a process of its own so that LD_PRELOAD and thread counts take effect.

Prints one JSON line: {"images_per_s": ..., "steps": ..., "torch": ...}.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class CifarBlock(nn.Module):
    """Basic block with option A shortcut (He et al. 2016, section 4.2): no parameters in it."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.stride, self.extra = stride, channels - channels_in

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        if self.extra:
            half = self.extra // 2
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, half, self.extra - half))
        return F.relu(x + y)


def cifar_resnet(depth):
    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    channels_in = 16
    for channels in (16, 32, 64):
        for block in range((depth - 2) // 6):
            stride = 2 if block == 0 and channels > 16 else 1
            layers.append(CifarBlock(channels_in, channels, stride))
            channels_in = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def make_model(name):
    """The network, its image size and its number of classes."""
    if name in ("resnet20", "resnet32", "resnet44", "resnet56", "resnet110"):
        return cifar_resnet(int(name[len("resnet"):])), 32, 10
    import torchvision  # only here: the CIFAR networks do without it

    return getattr(torchvision.models, name)(weights=None), 224, 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20, help="measure about this long")
    parser.add_argument("--channels-last", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    model, size, classes = make_model(args.model)
    images = torch.randn(args.batch, 3, size, size)
    labels = torch.randint(classes, (args.batch,))
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    loss_function = nn.CrossEntropyLoss()
    model.train()

    def step():
        start = time.perf_counter()
        optimizer.zero_grad()
        loss_function(model(images), labels).backward()
        optimizer.step()
        return time.perf_counter() - start

    first = step()
    for _ in range(2 if first < args.seconds / 4 else 1):  # warm-up
        step()
    times = []
    end = time.perf_counter() + args.seconds
    while len(times) < 2 or time.perf_counter() < end:
        times.append(step())
    print(json.dumps({"images_per_s": args.batch / statistics.median(times), "steps": len(times),
                      "torch": torch.__version__}))


if __name__ == "__main__":
    main()
