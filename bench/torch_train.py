"""Trains a network on synthetic images with PyTorch: one process of compare.py, so that LD_PRELOAD
and thread counts take effect."""

import argparse

import torch
import torch.nn as nn

import networks
import timing

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", default="resnet50")
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--seconds", type=float, default=10, help="measure so long")
parser.add_argument("--channels-last", action="store_true")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--bf16", action="store_true", help="under autocast")
args = parser.parse_args()

torch.set_num_threads(args.threads)
model, size, classes = networks.seeded_model(args.model)
images = torch.randn(args.batch, 3, size, size)
labels = torch.randint(classes, (args.batch,))
if args.channels_last:
    model = model.to(memory_format=torch.channels_last)
    images = images.contiguous(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9, weight_decay=1e-4)
loss_function = nn.CrossEntropyLoss()
model.train()
forward = torch.compile(model) if args.compile else model


def step():
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
        loss = loss_function(forward(images), labels)
    loss.backward()
    optimizer.step()


timing.report(timing.measure(step, args.seconds, args.batch), torch.__version__)
