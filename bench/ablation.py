#!/usr/bin/env python3
"""What each schedule policy gives in training, beside `free`: all policies in turn, in every round,
by `parax bench` on synthetic images. See bench/README.md."""

import argparse
import json
import pathlib
import subprocess
import sys

import machine
import rounds

BENCH = pathlib.Path(__file__).resolve().parent
POLICIES = ("free", "stagger", "gate", "gate+defer", "barriered")


def command(args, model, micro, policy, cores):
    """An instance takes --images images a step through, `micro` at a time; barriered takes the same
    global batch, with as many images at a time on all cores together."""
    batch = args.images * cores
    at_once = micro * cores if policy == "barriered" else micro
    line = [args.parax, "bench", "--json", "--mode", "train", "--model", model, "--batch", str(batch),
            "--bn-group", str(at_once), "--schedule-policy", policy]
    if policy != "barriered":
        line += ["--instances", str(cores)]
    if policy.startswith("gate") and args.gate:
        line += ["--gate", str(args.gate)]
    return line


def rows(args, cores):
    for model in args.models.split(","):
        for micro in (int(m) for m in args.micro.split(",")):
            lines = {policy: command(args, model, micro, policy, cores) for policy in POLICIES}
            for row in rounds.compare(lines, "free", args.rounds, args.seconds):
                yield {"model": model, "micro_batch": micro, **row}


def markdown(result):
    facts = result["machine"]
    hog = f", beside `memory_hog` on CPU {result['hog']}" if result["hog"] is not None else ""
    lines = [f"{facts['cpu']}, {facts['cores']} cores, fp32, synthetic images{hog}, made by "
             f"`{result['command']}`: images/s, and the ratio to `free` of the same round (median, "
             "lowest - highest).", "",
             "| network | micro-batch | " + " | ".join(f"`{p}`" for p in POLICIES) + " |",
             "|---|---|" + "---|" * len(POLICIES)]
    cells = {}
    for row in result["rows"]:
        cells.setdefault((row["model"], row["micro_batch"]), []).append(rounds.cell(row, "free"))
    for (model, micro), texts in cells.items():
        lines.append(f"| {model} | {micro} | " + " | ".join(texts) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--models", default="resnet20,resnet18,resnet50", help="with commas between")
    parser.add_argument("--micro", default="1,4", help="images an instance takes through at once")
    parser.add_argument("--images", type=int, default=8, help="an instance takes through a step")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="of one measurement")
    parser.add_argument("--gate", type=int, default=0,
                        help="memory-bound ops of a NUMA domain at once; 0: as measured")
    parser.add_argument("--hog", type=int, metavar="CPU",
                        help="run memory_hog there at the same time")
    parser.add_argument("--parax", default=str(BENCH.parent / "build/release/bin/parax"))
    parser.add_argument("--memory-hog", default=str(BENCH.parent / "build/release/bench/memory_hog"))
    parser.add_argument("--out", default="ablation", help="writes OUT.json and OUT.md")
    args = parser.parse_args()
    cores = len(machine.cores_of_one_domain())
    result = {"command": " ".join(["bench/ablation.py", *sys.argv[1:]]), "machine": machine.facts(),
              "hog": args.hog, "rows": []}
    out = pathlib.Path(args.out)
    hog = None
    if args.hog is not None:
        hog = subprocess.Popen([args.memory_hog, str(args.hog)], stdout=subprocess.DEVNULL)
    try:
        for row in rows(args, cores):
            if hog is not None and hog.poll() is not None:
                sys.exit(f"{args.memory_hog} has ended: its co-tenancy was not measured")
            result["rows"].append(row)
            print(f"{row['model']}, micro-batch {row['micro_batch']}, {row['who']}: "
                  f"{row['images_per_s']:.1f} images/s, {row['ratio']:.3f} of free", flush=True)
            out.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    finally:
        if hog is not None:
            hog.terminate()
            hog.wait()
    text = markdown(result)
    out.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
