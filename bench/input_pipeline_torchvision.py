"""torchvision's counterpart of input_pipeline.cc: images a second on one core, files in memory."""

import argparse
import io
import pathlib
import time

import torch
from PIL import Image
from torchvision import transforms

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--seconds", type=float, default=3)
parser.add_argument("--limit", type=int, default=1000)
parser.add_argument("--image-size", type=int, default=224)
args = parser.parse_args()

torch.set_num_threads(1)
paths = sorted(p for p in args.folder.rglob("*") if p.suffix in (".jpg", ".png"))
files = [p.read_bytes() for p in paths[:: max(1, len(paths) // args.limit)]]
transform = transforms.Compose([
    transforms.RandomResizedCrop(args.image_size),
    transforms.RandomHorizontalFlip(),
    transforms.ToTensor(),
    transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
])
start = time.perf_counter()
done = 0
while time.perf_counter() - start < args.seconds:
    transform(Image.open(io.BytesIO(files[done % len(files)])).convert("RGB"))
    done += 1
print(f"{done / (time.perf_counter() - start):.1f}")
