#!/usr/bin/env python3
"""Checks that a training run comes through what can happen to it, with the program as it is:
the same bits again, kills, a full disk, signals, damaged checkpoints, and the memory it foretold.

    scripts/check-crashes.py                       everything (about 10 minutes on two cores)
    scripts/check-crashes.py --short               what the tests run (seconds)
    scripts/check-crashes.py --only kills --kills 100 --seed 7

Needs Python 3 and build/release/bin/parax; the full-disk check needs root (it mounts a small tmpfs).
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from crash_bench import (
    Failed, check, await_that, checkpoints, checkpoint, last_step, state, same, Bench, measure,
    ROOT, LIMIT)


def check_repeat(bench, args):
    """The same seed and plan twice, with other numbers of decoding threads: the same bits."""
    plan = str(bench.reference() / "plan.json")
    for workers in ("1", "3"):
        run = bench.run(bench.folder / f"repeat-{workers}", "--plan", plan, "-j", workers)
        same(run, bench.reference(), f"-j {workers}")
    other = bench.run(bench.folder / "other-seed", "--seed", "1")
    check((checkpoint(other) / "model.safetensors").read_bytes() !=
          (checkpoint(bench.reference()) / "model.safetensors").read_bytes(),
          "another seed gives the same weights")
    return "-j 1, -j 3 and the plan of the first: same bits; another seed: others"


def kill_moment(bench, run, process, mode, target, rng):
    """Waits for the moment of a kill; False when the run ended before."""
    if mode == "start":  # while options, data and plans are made ready
        time.sleep(rng.uniform(0, 0.5))
        return process.poll() is None
    if not await_that(lambda: last_step(run) >= target, f"step {target}", process):
        return False
    if mode == "saving":
        folder = run / "checkpoints"
        if not await_that(lambda: any(folder.glob(".step-*")), "a checkpoint", process):
            return False
        time.sleep(rng.uniform(0, 0.01))
    else:
        time.sleep(rng.uniform(0, 0.2))
    return process.poll() is None


def check_kills(bench, args):
    """Kills at random moments, saving included; each time --resume auto goes on."""
    rng = random.Random(args.seed)
    run = bench.folder / "killed"
    killed, saving = 0, 0

    def unfinished():  # checkpoints; a kill leaves them, the next save removes them
        return {p.stat().st_ino for p in (run / "checkpoints").glob(".step-*")}

    while killed < args.kills:
        before = unfinished()
        process = bench.start(run, "--resume", "auto")
        mode = ("saving", "training", "saving", "start")[killed % 4]
        target = bench.steps * (killed + rng.random()) / (args.kills + 1)
        came = kill_moment(bench, run, process, mode, target, rng)
        process.kill()
        process.wait()
        check(came, f"the run ended before kill {killed + 1}:\n{bench.log(run)}")
        killed += 1
        saving += bool(unfinished() - before)
    bench.run(run, "--resume", "auto")
    same(run, bench.reference(), f"after {killed} kills (--seed {args.seed})")
    check(not unfinished(), "half a checkpoint was left behind")
    check(saving > 0, "no kill met a checkpoint being saved")
    return f"{killed} kills, {saving} of them while saving: same bits, each step once"


def check_early_stop(bench, args):
    """A run that stopped early does not train on when it is taken up again."""
    run = bench.run(bench.folder / "early", "--patience", "2", "--lr", "0")
    stopped = last_step(run)
    check(stopped < bench.steps, "a learning rate of 0 and --patience 2 did not stop early")
    bench.run(run, "--resume", "auto")
    check(last_step(run) == stopped, f"stopped early at {stopped}, went on to {last_step(run)}")
    return f"stopped early at step {stopped} for good"


def check_signals(bench, args):
    """SIGINT, SIGTERM: saved, exit 130; a second signal ends the program at once."""
    run = bench.folder / "signals"
    # Step 8 is one to be evaluated, which an interrupted run leaves to its next session.
    for sent, step in ((signal.SIGINT, 2), (signal.SIGTERM, 8)):
        process = bench.start(run, "--resume", "auto")
        check(await_that(lambda: last_step(run) >= step, f"step {step}", process), "ended early")
        process.send_signal(sent)
        bench.finish(process, run, 130)
        check(f"interrupted after step {checkpoints(run)[-1]} of" in bench.log(run),
              f"{sent.name} was not followed by a checkpoint:\n{bench.log(run)}")
    bench.run(run, "--resume")
    same(run, bench.reference(), "after SIGINT and SIGTERM")

    run = bench.folder / "at-once"
    process = bench.start(run)
    check(await_that(lambda: last_step(run) >= 2, "step 2", process), "ended early")
    process.send_signal(signal.SIGINT)
    status = Path(f"/proc/{process.pid}/status")
    pending = re.compile(r"ShdPnd:\s*([0-9a-f]+)")
    await_that(lambda: not int(pending.search(status.read_text())[1], 16) & 2, "the first SIGINT")
    process.send_signal(signal.SIGSTOP)  # lest it be done before somebody becomes impatient
    time.sleep(0.6)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    bench.finish(process, run, 130)
    check("interrupted after" not in bench.log(run), "the second SIGINT did not end it at once")
    return "SIGINT and SIGTERM save, exit 130 and resume to the same bits; twice ends at once"


def check_owed(bench, args):
    """Stopping on the very step of an evaluation: resuming makes up for it."""
    run = bench.folder / "owed"
    process = bench.start(run, "--eval-every", "1")
    check(await_that(lambda: last_step(run) >= 2, "step 2", process), "ended early")
    process.send_signal(signal.SIGINT)
    bench.finish(process, run, 130)
    owed = "owed" in json.loads((checkpoint(run) / "state.json").read_text())
    bench.run(run, "--resume", "--eval-every", "1")
    same(run, bench.run(bench.folder / "not-owed", "--eval-every", "1"), "after an owed evaluation")
    check(owed, "the interrupted run did not stop before an evaluation")
    return "an evaluation that a signal came before is made up for"


def check_damage(bench, args):
    """Each file of the newest checkpoint cut short: the one before it is used, and named."""
    reference, cuts = bench.reference(), 0
    newest, previous = reversed(checkpoints(reference)[-2:])
    names = sorted(p.name for p in checkpoint(reference).iterdir())
    run = bench.folder / "damaged"
    for name in names:
        size = (checkpoint(reference) / name).stat().st_size
        for length in (size // 2,) if args.short else (0, 1, size // 2, size - 1):
            shutil.copytree(reference, run)
            os.truncate(checkpoint(run) / name, length)
            bench.run(run, "--resume")
            log = bench.log(run)
            what = f"{name} cut to {length} of {size} bytes"
            check(f"step-{newest} is damaged" in log, f"{what}: not said:\n{log}")
            check(f"step-{previous} (step {previous} of" in log, f"{what}: not resumed:\n{log}")
            same(run, reference, what)
            shutil.rmtree(run)
            Path(str(run) + ".log").unlink()
            cuts += 1
        if args.short and cuts == 2:
            break
    return f"{cuts} cuts found out, step {previous} used instead of {newest}"


def check_disk(bench, args):
    """A disk that fills up while training: nothing lost, and saved when there is room again."""
    disk = bench.folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "parax", str(disk)],
                             stderr=subprocess.DEVNULL, check=False)
    if mounted.returncode != 0:
        return "skipped: mounting a tmpfs needs root"
    try:
        run = disk / "run"
        log_path = bench.folder / "disk.log"
        with open(log_path, "w") as log:
            process = subprocess.Popen(bench.command(run, "--keep", "2"), stdout=log, stderr=log)
        try:
            await_that(lambda: checkpoints(run), "the first checkpoint", process)
            with open(disk / "filler", "wb", buffering=0) as filler:
                try:
                    while filler.write(b"x" * 4096):
                        pass
                except OSError:
                    pass  # full
                check(await_that(lambda: "is not saved" in log_path.read_text(), "a warning",
                                 process), f"the full disk went unnoticed:\n{log_path.read_text()}")
                whole = checkpoint(run)
                image = next(bench.data.glob("val/*/*.png"))
                shown = subprocess.run([str(bench.parax), "predict", "--model", str(whole),
                                        str(image)], capture_output=True, text=True, check=False)
                check(shown.returncode == 0, f"{whole} can't be loaded: {shown.stderr}")
                filler.truncate(0)
            process.wait(LIMIT)
        finally:
            process.kill()
            process.wait()
        check(process.returncode == 0, f"exit {process.returncode}:\n{log_path.read_text()}")
        same(run, bench.reference(), "after a full disk")
        failed = log_path.read_text().count("is not saved")
        return f"{failed} saves failed, {whole.name} stayed whole, then all was there: same bits"
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# --- memory -------------------------------------------------------------------------------------


def check_peak(bench, args):
    """Measured peak memory within 10 % of what the first line says."""
    lines, wrong = [], []
    cases = [("resnet20 digits", bench.command(bench.folder / "peak-resnet20"))]
    for model, batch in (() if args.short else (("resnet18", 32), ("resnet50", 32))):
        cases.append((f"{model} synthetic {batch}", [
            str(bench.parax), "train", "--data", "synthetic", "--model", model, "--batch",
            str(batch), "--max-steps", "3", "--out", str(bench.folder / f"peak-{model}")]))
    for name, command in cases:
        peak, foretold, _ = measure(command, Path(command[command.index("--out") + 1]))
        lines.append(f"{name}: {peak / 1e6:.0f} MB, {foretold / 1e6:.0f} foretold "
                     f"({100 * (foretold / peak - 1):+.1f} %)")
        if abs(foretold / peak - 1) > 0.1:
            wrong.append(name)
    text = "; ".join(lines)
    check(not wrong, f"not within 10 %: {text}")
    return text


def check_flat(bench, args):
    """Memory in use the same after 1,000 more iterations, alone and with evaluations and saves."""
    warm, more = 200, 1000
    lines, wrong = [], []
    for name, every in (("alone", "0"), ("with evaluations and saves", "50")):
        run = bench.folder / f"flat-{every}"
        command = bench.command(run)
        for flag, value in (("--max-steps", str(warm + more + 50)), ("--eval-every", every),
                            ("--save-every", every)):
            command[command.index(flag) + 1] = value
        _, _, samples = measure(command, run, every=0.05)

        def median(first):
            values = sorted(size for step, size in samples if first <= step < first + 50)
            return values[len(values) // 2]

        before, after = median(warm), median(warm + more)
        lines.append(f"{name}: {before / 1e6:.2f} MB at step {warm}, "
                     f"{after / 1e6:.2f} at {warm + more}")
        if abs(after / before - 1) > 0.01:
            wrong.append(name)
    text = "; ".join(lines)
    check(not wrong, f"not flat: {text}")
    return text


CHECKS = {"repeat": check_repeat, "kills": check_kills, "early-stop": check_early_stop,
          "signals": check_signals, "owed": check_owed, "damage": check_damage,
          "disk": check_disk, "peak": check_peak, "flat": check_flat}
SHORT = ("kills", "signals", "damage")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--parax", type=Path, default=ROOT / "build/release/bin/parax",
                        help="the program (default: build/release/bin/parax)")
    parser.add_argument("--only", nargs="+", choices=CHECKS, help="these checks")
    parser.add_argument("--short", action="store_true", help="some of the checks, few kills and cuts")
    parser.add_argument("--kills", type=int, help="how many (default: 20; --short: 3)")
    parser.add_argument("--steps", type=int, help="of a run (default: 60; --short: 16)")
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    args = parser.parse_args()
    args.kills = args.kills or (3 if args.short else 20)
    args.steps = args.steps or (16 if args.short else 60)
    args.parax = args.parax.resolve()
    if not args.parax.exists():
        sys.exit(f"{args.parax} is missing: build it first, or give --parax")
    failures = 0
    folder = Path(tempfile.mkdtemp(prefix="parax-crashes-"))
    bench = Bench(args, folder)
    for name in args.only or (SHORT if args.short else CHECKS):
        started = time.monotonic()
        try:
            line = "ok      " + name + ": " + CHECKS[name](bench, args)
        except Failed as failure:
            line, failures = f"FAILED  {name}: {failure}", failures + 1
        print(f"{line} ({time.monotonic() - started:.0f} s)", flush=True)
    if failures:
        sys.exit(f"{failures} failed; the runs are in {folder}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
