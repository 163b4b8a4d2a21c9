"""Compares the input pipeline with torchvision's on one core, in alternation.

    input_pipeline.py FOLDER --binary build/release/bench/input_pipeline [--enlarge 1024]

Needs a Python with torchvision (--python) for the other side. --enlarge measures on copies of the
photographs enlarged to that short side, in a temporary folder.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile

ENLARGE = """
import pathlib, sys
from PIL import Image
source, target, side, limit = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
paths = sorted(pathlib.Path(source).rglob("*.jpg"))
for i, path in enumerate(paths[:: max(1, len(paths) // limit)]):
    image = Image.open(path).convert("RGB")
    factor = side / min(image.size)
    size = [max(side, round(d * factor)) for d in image.size]
    image.resize(size, Image.BICUBIC).save(target / f"{i:05}.jpg", quality=90)
"""

parser = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("folder")
parser.add_argument("--binary", required=True)
parser.add_argument("--python", default=sys.executable, help="a Python with torchvision")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--seconds", type=float, default=3)
parser.add_argument("--limit", type=int, default=500, help="most images")
parser.add_argument("--enlarge", type=int, default=0)
args = parser.parse_args()

with tempfile.TemporaryDirectory() as scratch:
    folder = args.folder
    if args.enlarge:
        args.limit = min(args.limit, 100)
        subprocess.run([args.python, "-c", ENLARGE, folder, scratch, str(args.enlarge),
                        str(args.limit)], check=True)
        folder = scratch
    common = [folder, "--seconds", str(args.seconds), "--limit", str(args.limit)]
    torchvision = pathlib.Path(__file__).with_name("input_pipeline_torchvision.py")
    sides = {
        "torchvision": [args.python, str(torchvision), *common],
        "scaled decoding on": [args.binary, *common],
        "scaled decoding off": [args.binary, *common, "--no-scaled-decoding"],
    }
    rates = {name: [] for name in sides}
    for _ in range(args.rounds):
        for name, command in sides.items():
            result = subprocess.run(command, check=True, capture_output=True, text=True)
            rates[name].append(float(result.stdout))
    base = statistics.median(rates["torchvision"])
    for name, values in rates.items():
        middle = statistics.median(values)
        spread = " ".join(f"{v:.0f}" for v in values)
        print(f"{name:20} {middle:8.1f} images/s  {middle / base:5.2f}x  ({spread})")
