#!/usr/bin/env python3
"""How well `parax sim` foretells: `parax bench` and `parax sim --machine this` on the same networks,
instances and policies, and the table measured / simulated / error. See bench/README.md."""

import argparse
import json
import pathlib
import sys

import machine
import program

BENCH = pathlib.Path(__file__).resolve().parent
POLICIES = ("barriered", "free", "stagger", "gate", "gate+defer")


def bench(args, model, images, policy, instances, cores, seconds):
    at_once = images * (cores if policy == "barriered" else 1)
    line = [args.parax, "bench", "--json", "--model", model, "--schedule-policy", policy,
            "--batch", str(images * (cores if policy == "barriered" else instances)),
            "--bn-group", str(at_once), "--seconds", str(seconds), "--tune", args.tune]
    if policy != "barriered":
        line += ["--instances", str(instances)]
    if policy.startswith("gate"):
        line += ["--gate", str(args.gate)]
    return program.run_json(line)["images_per_s"]


def sim(args, model, images, policy, instances):
    line = [args.parax, "sim", "--json", "--machine", "this", "--model", model, "--policy", policy,
            "--batch", str(images * instances), "--instances", str(instances),
            "--gate", str(args.gate), "--seconds", str(args.seconds), "--tune", args.tune]
    return {row["policy"]: row["images_per_s"] for row in program.run_json(line)["results"]}


def rows(args, cores):
    policies = args.policies.split(",")
    cases = [("free", 1)] + [(policy, cores) for policy in policies]
    for model, images in (pair.split(":") for pair in args.models.split(",")):
        images = int(images)
        if args.tune == "auto":
            for policy, instances in cases:
                bench(args, model, images, policy, instances, cores, 0.1)
        if args.tune_only:
            continue
        # Before and after, so that a machine that slows down slows down both.
        before = [bench(args, model, images, *case, cores, args.seconds) for case in cases]
        simulated = [sim(args, model, images, "free", 1)["free"]]
        all_cores = sim(args, model, images, policies[0] if len(policies) == 1 else "all", cores)
        simulated += [all_cores[policy] for policy in policies]
        after = [bench(args, model, images, *case, cores, args.seconds) for case in cases]
        for i, (policy, instances) in enumerate(cases):
            measured = (before[i] + after[i]) / 2
            yield {"model": model, "images": images, "policy": policy,
                   "instances": 1 if policy == "barriered" else instances,
                   "measured": measured, "apart": abs(before[i] - after[i]) / measured,
                   "simulated": simulated[i], "error": simulated[i] / measured - 1}


def markdown(result):
    facts = result["machine"]
    lines = [f"{facts['cpu']}, {facts['cores']} cores, fp32, made by `{result['command']}`:", "",
             "| network, images a core | policy | instances | measured, images/s | simulated | error |",
             "|---|---|---|---|---|---|"]
    for row in result["rows"]:
        lines.append(f"| {row['model']}, {row['images']} | `{row['policy']}` | {row['instances']} | "
                     f"{row['measured']:.1f} | {row['simulated']:.1f} | {100 * row['error']:+.1f} % |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--models", default="resnet20:64,resnet18:8,resnet50:8",
                        help="NAME:IMAGES a core and step, with commas between")
    parser.add_argument("--policies", default=",".join(POLICIES), help="on all cores")
    parser.add_argument("--seconds", type=float, default=4, help="of one measurement")
    parser.add_argument("--gate", type=int, default=1,
                        help="memory-bound ops of a NUMA domain at once, in policies gate and "
                             "gate+defer")
    parser.add_argument("--tune", default="auto", help="auto or off")
    parser.add_argument("--tune-only", action="store_true",
                        help="only choose kernels, which takes long and is kept")
    parser.add_argument("--parax", default=str(BENCH.parent / "build/release/bin/parax"))
    parser.add_argument("--out", default="simulate", help="writes OUT.json and OUT.md")
    args = parser.parse_args()
    result = {"command": " ".join(["bench/simulate.py", *sys.argv[1:]]), "machine": machine.facts(),
              "rows": []}
    out = pathlib.Path(args.out)
    for row in rows(args, len(machine.cores_of_one_domain())):
        result["rows"].append(row)
        print(f"{row['model']}, {row['policy']}, {row['instances']}: measured {row['measured']:.1f} "
              f"({100 * row['apart']:.0f} % apart), simulated {row['simulated']:.1f}", flush=True)
        out.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    out.with_suffix(".md").write_text(markdown(result))
    print(markdown(result))


if __name__ == "__main__":
    main()
