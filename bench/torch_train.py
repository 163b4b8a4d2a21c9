"""Trains a network on synthetic images with PyTorch: one process of compare.py, so that LD_PRELOAD
and thread counts take effect."""

import argparse

import torch
import torch.distributed as dist
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
parser.add_argument("--rank", type=int, default=0)
parser.add_argument("--world", type=int, default=1, help="processes that train one network")
parser.add_argument("--rendezvous", help="new file where they meet")
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
if args.world > 1:
    dist.init_process_group("gloo", init_method=f"file://{args.rendezvous}", rank=args.rank,
                            world_size=args.world)
    # Running statistics differ from process to process, as between our instances within a step.
    model = nn.parallel.DistributedDataParallel(model, broadcast_buffers=False,
                                                gradient_as_bucket_view=True)
forward = torch.compile(model) if args.compile else model


def step():
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
        loss = loss_function(forward(images), labels)
    loss.backward()
    optimizer.step()


def agree(go_on):
    if args.world == 1:
        return go_on
    flag = torch.tensor([int(go_on)])
    dist.broadcast(flag, 0)  # as rank 0 wishes
    return bool(flag.item())


timing.report(timing.measure(step, args.seconds, args.batch, agree), torch.__version__)
