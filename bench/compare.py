#!/usr/bin/env python3
"""The whole comparison table: training beside PyTorch, inference beside PyTorch, OpenVINO and ONNX
Runtime, on synthetic images in fp32. See bench/README.md."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import contenders
import machine
import program
import table

BENCH = pathlib.Path(__file__).resolve().parent


def run_processes(args, setting, cores):
    """What each of the setting's processes measured, all at the same time."""
    environment = dict(os.environ, OMP_NUM_THREADS=str(setting["threads"]))
    if setting["tcmalloc"]:
        environment["LD_PRELOAD"] = args.tcmalloc
    command = [args.python, str(BENCH / setting["command"][0]), *setting["command"][1:], "--model",
               args.model, "--threads", str(setting["threads"]), "--seconds", str(args.seconds)]
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile("w+") as errors:
        children = []
        for i in range(setting["processes"]):
            mine = {cores[i]} if setting["processes"] > 1 else set(cores)
            together = []
            if setting["together"]:
                together = ["--rank", str(i), "--world", str(setting["processes"]), "--rendezvous",
                            f"{scratch}/rendezvous"]
            children.append(subprocess.Popen(
                command + together, env=environment, text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=errors, preexec_fn=lambda cpus=mine: os.sched_setaffinity(0, cpus)))

        def give_up():
            for child in children:
                child.kill()
                child.wait()
            errors.seek(0)
            program.fail(command, errors.read())

        for child in children:  # all warm up, then all begin
            line = child.stdout.readline()
            while line and line != "ready\n":
                line = child.stdout.readline()
            if not line:
                give_up()
        for child in children:
            child.stdin.write("\n")
            child.stdin.flush()
        results = []
        for child in children:
            output = child.stdout.read()
            if child.wait() != 0:
                give_up()
            results.append(json.loads(output.splitlines()[-1]))
    return results


def run_parax(args, setting):
    command = [args.parax, "bench", "--model", args.model, "--json", "--seconds", str(args.seconds),
               *setting["command"]]
    return program.run_json(command)


def measure(args, setting, cores):
    """images_per_s, and latency_ms where it is known, of one measurement."""
    if setting["program"] == "parax":
        result = run_parax(args, setting)
        return {"images_per_s": result["images_per_s"], "latency_ms": result["latency_ms"]["p50"],
                "efficiency": result["efficiency"]}
    results = run_processes(args, setting, cores)
    measured = {"images_per_s": sum(r["images_per_s"] for r in results),
                "version": results[0]["version"]}
    if len(results) == 1 and "latency_ms" in results[0]:
        measured["latency_ms"] = results[0]["latency_ms"]
    return measured


def screen(args, name, settings, cores, better, screening):
    """The best of the settings by one measurement each, and how good it is. No measurement where
    there is no choice."""
    if len(settings) == 1 and not args.best:
        return 0, settings[0]
    measured = []
    for setting in settings:
        result = measure(args, setting, cores)
        measured.append((better(result), setting))
        screening.append({"who": name, "setting": setting["label"], **result})
        print(f"  screening {name}: {setting['label']}: {result['images_per_s']:.2f} images/s",
              flush=True)
    return max(measured, key=lambda pair: pair[0])


def compare(args, kind, ours, others, cores):
    """Rounds in which ours runs before and after each other one; a ratio is ours' mean of both
    neighbours over theirs. `kind`: training, throughput or latency."""
    print(f"{args.model}, {kind}:", flush=True)
    latency = kind == "latency"
    value = (lambda r: 1 / r["latency_ms"]) if latency else (lambda r: r["images_per_s"])
    screening = []
    _, our_setting = screen(args, "ParaX", ours, cores, value, screening)
    found = {name: screen(args, name, settings, cores, value, screening)
             for name, settings in others.items()}
    if args.best:
        best = max(found, key=lambda name: found[name][0])
        found = {best: found[best]}
    chosen = {name: setting for name, (_, setting) in found.items()}
    rounds = {name: [] for name in chosen}
    our_results = []
    for number in range(args.rounds):
        before = measure(args, our_setting, cores)
        our_results.append(before)
        for name, setting in chosen.items():
            theirs = measure(args, setting, cores)
            after = measure(args, our_setting, cores)
            our_results.append(after)
            ratio = (value(before) + value(after)) / 2 / value(theirs)
            rounds[name].append({"theirs": theirs, "before": before, "after": after,
                                 "ratio": ratio})
            print(f"  round {number + 1}, {name}: {ratio:.3f}", flush=True)
            before = after
    key = "latency_ms" if latency else "images_per_s"
    rows = []
    for name, turns in rounds.items():
        ratios = [turn["ratio"] for turn in turns]
        rows.append({"who": name, "setting": chosen[name]["label"],
                     "version": turns[0]["theirs"]["version"],
                     key: statistics.median(turn["theirs"][key] for turn in turns),
                     "ratio": statistics.median(ratios), "lowest": min(ratios),
                     "highest": max(ratios), "rounds": turns})
    return {"model": args.model, "kind": kind, "setting": our_setting["label"],
            key: statistics.median(result[key] for result in our_results),
            "efficiency": statistics.median(result["efficiency"] for result in our_results),
            "screening": screening, "rows": rows}


def comparisons(args, cores, scratch):
    n = len(cores)
    if args.only != "infer":
        yield ("training", *contenders.training(args.model, n, args.tcmalloc, args.quick))
    if args.only != "train":
        onnx = f"{scratch}/{args.model}.onnx"
        code = f"import networks; networks.export_onnx({args.model!r}, {onnx!r})"
        result = subprocess.run([args.python, "-c", code], cwd=BENCH, capture_output=True, text=True)
        if result.returncode != 0:
            program.fail(["networks.export_onnx", args.model], result.stdout + result.stderr)
        yield ("throughput",
               *contenders.throughput(args.model, n, args.tcmalloc, args.quick, onnx))
        yield ("latency",
               *contenders.single_stream(args.model, n, args.tcmalloc, args.quick, onnx))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--models", default="resnet50,resnet20", help="with commas between")
    parser.add_argument("--only", choices=["train", "infer"], help="not both")
    parser.add_argument("--quick", action="store_true",
                        help="one batch size, 2 seconds, one round: to see that all works")
    parser.add_argument("--best", action="store_true",
                        help="after the screening only the fastest of the others")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8, help="of one measurement")
    parser.add_argument("--python", default=sys.executable, help="has bench/requirements.txt")
    parser.add_argument("--parax", default=str(BENCH.parent / "build/release/bin/parax"))
    parser.add_argument("--tcmalloc", default=machine.find_tcmalloc(), help="library to preload")
    parser.add_argument("--out", default="bench-results", help="writes OUT.json and OUT.md")
    parser.add_argument("--readme", action="store_true",
                        help="puts the table between README.md's bench marks")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.seconds = 1, 2
    machine.check(args.python, args.parax,
                  machine.PACKAGES[:2] if args.only == "train" else machine.PACKAGES)
    if not args.tcmalloc:
        print("libtcmalloc_minimal is not there (Debian: libtcmalloc-minimal4): PyTorch goes "
              "without it, and may be slower", file=sys.stderr)
    cores = machine.cores()
    command = " ".join(["bench/run.sh", *sys.argv[1:]])
    result = {"commands": [command], "machine": machine.facts(), "comparisons": []}
    out = pathlib.Path(args.out)
    with tempfile.TemporaryDirectory() as scratch:
        for args.model in args.models.split(","):
            for kind, ours, others in comparisons(args, cores, scratch):
                result["comparisons"].append(compare(args, kind, ours, others, cores))
                # After each: an interrupted run keeps what it has.
                out.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    markdown = table.markdown(result)
    out.with_suffix(".md").write_text(markdown)
    print(markdown)
    if args.readme:
        table.rewrite(BENCH.parent / "README.md", markdown)


if __name__ == "__main__":
    main()
