#!/usr/bin/env python3
"""Training throughput beside PyTorch's, on synthetic images, in alternation in one run.

First PyTorch is screened: every mode (default, channels_last, channels_last with tcmalloc) at every
batch size once. Then its best setting and ours take turns; the ratio is the median over the
turns. See bench/README.md.
"""

import argparse
import ctypes.util
import glob
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODES = ("default", "channels_last", "channels_last+tcmalloc")


def find_tcmalloc():
    for pattern in ("/usr/lib/*/libtcmalloc_minimal.so.4", "/usr/lib*/libtcmalloc_minimal.so.4"):
        found = sorted(glob.glob(pattern))
        if found:
            return found[0]
    return ctypes.util.find_library("tcmalloc_minimal")


def read(path):
    try:
        return pathlib.Path(path).read_text().strip()
    except OSError:
        return ""


def machine():
    """What the figures depend on."""
    model = [line.split(":", 1)[1].strip() for line in read("/proc/cpuinfo").splitlines()
             if line.startswith("model name")]
    flags = read("/proc/cpuinfo")
    return {
        "cpu": model[0] if model else platform.processor(),
        "cpus": len(os.sched_getaffinity(0)),
        "avx512": " avx512f" in flags, "avx512_bf16": " avx512_bf16" in flags,
        "amx": " amx_tile" in flags,
        "kernel": platform.release(),
        "transparent_hugepage": read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "governor": read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "unknown",
        "load_at_start": os.getloadavg()[0],
    }


def run(command, environment=None):
    """The last line of the command's output; everything is shown and we stop when it fails."""
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"failed: {' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout


def pytorch(args, mode, batch):
    """Images/s of one child process."""
    command = [args.python, str(ROOT / "bench/torch_train.py"), "--model", args.model, "--batch",
               str(batch), "--threads", str(args.threads), "--seconds", str(args.seconds)]
    environment = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
    if mode.startswith("channels_last"):
        command.append("--channels-last")
    if mode.endswith("tcmalloc"):
        environment["LD_PRELOAD"] = args.tcmalloc
    result = json.loads(run(command, environment).splitlines()[-1])
    args.torch_version = result["torch"]
    return result["images_per_s"]


def ours(args):
    """Images/s of one run of `parax train`: the median over the second half of its steps."""
    with tempfile.TemporaryDirectory() as out:
        run([args.parax, "train", "--data", "synthetic", "--model", args.model, "--batch",
             str(args.our_batch), "--bn-group", str(args.bn_group), "--instances",
             str(args.threads), "--max-steps", str(args.our_steps), "--out", f"{out}/run",
             "--quiet", "--json", *args.our_flags.split()])
        lines = [json.loads(line) for line in read(f"{out}/run/metrics.jsonl").splitlines()]
    rates = [line["images_per_s"] for line in lines if "images_per_s" in line]
    if not rates:
        sys.exit("parax train wrote no images_per_s into metrics.jsonl")
    return statistics.median(rates[len(rates) // 2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="one that has torch, torchvision")
    parser.add_argument("--parax", default=str(ROOT / "build/release/bin/parax"))
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batches", default="16,32,64", help="PyTorch's, comma-separated")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--our-batch", type=int, default=64)
    parser.add_argument("--bn-group", type=int, default=16)
    parser.add_argument("--our-steps", type=int, default=12)
    parser.add_argument("--our-flags", default="", help="more flags of parax train")
    parser.add_argument("--threads", type=int, default=2, help="PyTorch's threads, our instances")
    parser.add_argument("--seconds", type=float, default=15, help="of one PyTorch measurement")
    parser.add_argument("--rounds", type=int, default=3, help="turns of the alternation")
    parser.add_argument("--tcmalloc", default=find_tcmalloc())
    parser.add_argument("--pytorch-only", action="store_true")
    parser.add_argument("--json", metavar="FILE", help="write everything here as well")
    args = parser.parse_args()

    modes = args.modes.split(",")
    if "channels_last+tcmalloc" in modes and not args.tcmalloc:
        sys.exit("libtcmalloc_minimal was not found (Debian: libtcmalloc-minimal4); name it with "
                 "--tcmalloc, or leave the mode out with --modes default,channels_last")
    if not args.pytorch_only and not shutil.which(args.parax):
        sys.exit(f"{args.parax} is not there: build it, or name it with --parax")

    result = {"model": args.model, "machine": machine(), "screening": [], "rounds": []}
    print(json.dumps(result["machine"]))
    for batch in map(int, args.batches.split(",")):
        for mode in modes:
            rate = pytorch(args, mode, batch)
            result["screening"].append({"mode": mode, "batch": batch, "images_per_s": rate})
            print(f"PyTorch {args.torch_version} {mode:24} batch {batch:3}: {rate:8.2f} images/s",
                  flush=True)
    result["torch"] = args.torch_version
    best = max(result["screening"], key=lambda row: row["images_per_s"])
    result["best"] = best

    if not args.pytorch_only:
        for number in range(args.rounds):
            theirs_rate = pytorch(args, best["mode"], best["batch"])
            our_rate = ours(args)
            row = {"pytorch": theirs_rate, "parax": our_rate, "ratio": our_rate / theirs_rate}
            result["rounds"].append(row)
            print(f"round {number + 1}: PyTorch {theirs_rate:.2f}, ParaX {our_rate:.2f} images/s, "
                  f"ratio {row['ratio']:.3f}", flush=True)
        result["median_ratio"] = statistics.median(row["ratio"] for row in result["rounds"])
        print(f"{args.model}: {result['median_ratio']:.2f}x PyTorch {args.torch_version} "
              f"({best['mode']}, batch {best['batch']}), ours at batch {args.our_batch}, "
              f"median of {args.rounds}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
