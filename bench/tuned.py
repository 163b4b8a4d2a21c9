#!/usr/bin/env python3
"""What tuning gives in training: plans as tuned beside fixed ones with the same layout everywhere,
in turn in every round, by `parax bench` on synthetic images. See bench/README.md."""

import argparse
import json
import pathlib
import sys

import machine
import rounds

BENCH = pathlib.Path(__file__).resolve().parent
VARIANTS = {"tuned": [], "nhwc everywhere": ["--tune", "off", "--layout", "nhwc"],
            "blocked everywhere": ["--tune", "off", "--layout", "blocked"]}


def markdown(result):
    facts = result["machine"]
    lines = [f"{facts['cpu']}, {facts['cores']} cores, fp32, synthetic images, made by "
             f"`{result['command']}`: images/s, and the ratio to `tuned` of the same round (median, "
             "lowest - highest).", "",
             "| network | " + " | ".join(VARIANTS) + " |", "|---|" + "---|" * len(VARIANTS)]
    for model, rows in result["models"].items():
        cells = [rounds.cell(row, "tuned") for row in rows]
        lines.append(f"| {model} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--models", default="resnet20,resnet18,resnet50,resnet101",
                        help="with commas between; NAME:IMAGES for other than --images")
    parser.add_argument("--images", type=int, default=16, help="an instance takes through at once")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4, help="of one measurement")
    parser.add_argument("--parax", default=str(BENCH.parent / "build/release/bin/parax"))
    parser.add_argument("--out", default="tuned", help="writes OUT.json and OUT.md")
    args = parser.parse_args()
    cores = len(machine.cores())
    result = {"command": " ".join(["bench/tuned.py", *sys.argv[1:]]), "machine": machine.facts(),
              "models": {}}
    out = pathlib.Path(args.out)
    for name in args.models.split(","):
        model, _, images = name.partition(":")
        share = int(images or args.images)
        line = [args.parax, "bench", "--json", "--mode", "train", "--model", model, "--batch",
                str(share * cores), "--bn-group", str(share), "--instances", str(cores)]
        lines = {variant: line + flags for variant, flags in VARIANTS.items()}
        rows = list(rounds.compare(lines, "tuned", args.rounds, args.seconds))
        for row in rows:
            print(f"{name}, {row['who']}: {row['images_per_s']:.1f} images/s, {row['ratio']:.3f} of "
                  "tuned", flush=True)
        result["models"][name] = rows
        out.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    text = markdown(result)
    out.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
