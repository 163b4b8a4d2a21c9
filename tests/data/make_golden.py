"""Writes tests/data/golden: what PIL and torchvision make of small images.

Run by hand (pip install pillow torchvision); the result is committed, the tests need no Python.
"""

import json
import pathlib
import random

from PIL import Image, ImageDraw
from torchvision import transforms
from torchvision.transforms import functional as F

out = pathlib.Path(__file__).with_name("golden")
out.mkdir(exist_ok=True)
random.seed(1)

# Edges, gradients and noise: what resampling filters differ on.
source = Image.new("RGB", (97, 71))
draw = ImageDraw.Draw(source)
for x in range(97):
    draw.line([(x, 0), (x, 70)], fill=(x * 255 // 96, 255 - x * 2, (x * 37) % 256))
draw.ellipse([20, 10, 70, 60], fill=(250, 30, 60))
draw.line([(0, 70), (96, 0)], fill=(0, 0, 0), width=3)
for _ in range(600):
    source.putpixel((random.randrange(97), random.randrange(71)),
                    tuple(random.randrange(256) for _ in range(3)))
source.save(out / "source.png")

FILTERS = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}
cases = []
for number, (box, size) in enumerate([
    ((0, 0, 97, 71), (97, 71)),    # nothing to do
    ((0, 0, 97, 71), (40, 33)),    # reduce
    ((0, 0, 97, 71), (7, 5)),      # reduce a lot
    ((13, 9, 40, 31), (48, 48)),   # enlarge a crop
    ((5, 3, 90, 20), (32, 40)),    # reduce one way, enlarge the other
    ((50, 50, 51, 51), (8, 8)),    # a single pixel
]):
    for name, value in FILTERS.items():
        file = f"resize-{number}-{name}.png"
        source.crop(box).resize(size, value).save(out / file)
        cases.append({"box": box, "size": size, "filter": name, "file": file})

decoded = []
for name, image, options in [
    ("gray", source.convert("L"), {}),
    ("cmyk", source.convert("CMYK"), {}),
    ("progressive", source, {"progressive": True}),
    ("h2v2", source, {"subsampling": "4:2:0"}),
]:
    image.save(out / f"{name}.jpg", quality=85, **options)
    Image.open(out / f"{name}.jpg").convert("RGB").save(out / f"{name}.png")
    decoded.append(name)

jitter = []
for kind, step, factor in [("brightness", F.adjust_brightness, 1.3), ("brightness", F.adjust_brightness, 0.4),
                     ("contrast", F.adjust_contrast, 1.6), ("contrast", F.adjust_contrast, 0.5),
                     ("saturation", F.adjust_saturation, 1.7), ("saturation", F.adjust_saturation, 0.2),
                     ("hue", F.adjust_hue, 0.25), ("hue", F.adjust_hue, -0.4)]:
    file = f"jitter-{kind}-{factor}.png"
    step(source, factor).save(out / file)
    jitter.append({"kind": kind, "factor": factor, "file": file})

# Evaluation: short side 40, centre 33 (the crop's corner is rounded).
transforms.Compose([transforms.Resize(40), transforms.CenterCrop(33)])(source).save(out / "eval.png")

(out / "index.json").write_text(json.dumps(
    {"resize": cases, "decode": decoded, "jitter": jitter}, indent=1) + "\n")
