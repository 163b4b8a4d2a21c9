#!/usr/bin/env python3
"""Peak memory of training at one global batch, beside PyTorch's settings: the largest resident set of
each process, as the kernel tells it. See bench/README.md."""

import argparse
import json
import os
import pathlib
import subprocess
import sys

import machine

BENCH = pathlib.Path(__file__).resolve().parent


def peak_mib(command, environment=None):
    """Runs the command, which may wait for a line, to its end."""
    with subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        child.stdin.write("\n")
        child.stdin.close()
        output = child.stdout.read() + child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"failed: {' '.join(command)}\n{output}")
    return usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int, default=32, help="images a step, of all instances")
    parser.add_argument("--seconds", type=float, default=5, help="of training")
    parser.add_argument("--python", default=sys.executable, help="has bench/requirements.txt")
    parser.add_argument("--parax", default=str(BENCH.parent / "build/release/bin/parax"))
    parser.add_argument("--tcmalloc", default=machine.find_tcmalloc(), help="library to preload")
    args = parser.parse_args()
    machine.check(args.python, args.parax, machine.PACKAGES[:2])
    cores = len(machine.cores())
    seconds = ["--seconds", str(args.seconds)]
    torch = [args.python, str(BENCH / "torch_train.py"), "--model", args.model, "--batch",
             str(args.batch), "--threads", str(cores), *seconds]
    ours = [args.parax, "bench", "--model", args.model, "--mode", "train", "--batch",
            str(args.batch), "--json", *seconds]
    plain, tcmalloc = dict(os.environ), dict(os.environ, LD_PRELOAD=args.tcmalloc or "")
    subprocess.run(ours, check=True, capture_output=True)  # tunes, which is not what is asked for
    rows = {"ParaX": peak_mib(ours), "ParaX, untuned": peak_mib([*ours, "--tune", "off"]),
            "PyTorch as installed": peak_mib(torch, plain),
            "PyTorch, channels_last": peak_mib([*torch, "--channels-last"], plain)}
    if args.tcmalloc:
        rows["PyTorch, channels_last + tcmalloc"] = peak_mib([*torch, "--channels-last"], tcmalloc)
    rows["PyTorch, torch.compile + channels_last"] = peak_mib(
        [*torch, "--channels-last", "--compile"], tcmalloc)
    print(json.dumps({"model": args.model, "batch": args.batch, "peak_mib": rows}))
    print(f"| {args.model}, {args.batch} images a step | peak memory | beside ParaX |\n|---|---|---|")
    for who, mib in rows.items():
        print(f"| {who} | {mib:,.0f} MiB | {mib / rows['ParaX']:.2f} |")


if __name__ == "__main__":
    main()
