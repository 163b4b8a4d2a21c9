"""What check-crashes.py runs with: starting runs, awaiting conditions, reading and comparing run folders, measuring memory."""

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 240  # seconds that anything awaited may take
TIMES = {"images_per_s"}  # metrics that measure time
# Options that say where and with how many threads, not what is computed.
FREE = ("out", "resume", "plan", "workers", "quiet", "keep")


class Failed(Exception):
    pass


def check(truth, message):
    if not truth:
        raise Failed(message)


def await_that(condition, what, process=None):
    """Until `condition()`; False when `process` ended first."""
    end = time.monotonic() + LIMIT
    while not condition():
        if process is not None and process.poll() is not None:
            return False
        check(time.monotonic() < end, f"waited {LIMIT} s in vain for {what}")
        time.sleep(0.001)
    return True


# --- a run folder -------------------------------------------------------------------------------


def checkpoints(run):
    """Steps that have a checkpoint, ascending."""
    names = [p.name for p in (run / "checkpoints").glob("step-*")]
    return sorted(int(name[5:]) for name in names)


def checkpoint(run, step=None):
    return run / "checkpoints" / f"step-{checkpoints(run)[-1] if step is None else step}"


def metrics(run):
    """The whole lines of metrics.jsonl without times."""
    lines = (run / "metrics.jsonl").read_text().split("\n")[:-1]
    points = [json.loads(line) for line in lines]
    return [{k: v for k, v in point.items() if k not in TIMES} for point in points]


def last_step(run):
    try:
        points = metrics(run)
    except (OSError, ValueError):
        return 0
    return points[-1]["step"] if points else 0


def state(run):
    """state.json without times and places."""
    content = json.loads((checkpoint(run) / "state.json").read_text())
    del content["seconds"], content["command"]
    content["config"] = [line for line in content["config"].split("\n")
                         if line.split(" = ")[0] not in FREE]
    return content


def same(run, reference, what):
    check(checkpoints(run)[-1] == checkpoints(reference)[-1],
          f"{what}: ends at step {checkpoints(run)[-1]}, not {checkpoints(reference)[-1]}")
    for name in ("model", "ema", "optimizer"):
        a, b = (checkpoint(r) / f"{name}.safetensors" for r in (run, reference))
        check(a.read_bytes() == b.read_bytes(), f"{what}: {name}.safetensors differs")
    check(state(run) == state(reference),
          f"{what}: state.json differs: {run} {reference}")
    ours, theirs = metrics(run), metrics(reference)
    check([p["step"] for p in ours] == list(range(1, len(ours) + 1)),
          f"{what}: metrics.jsonl does not hold each step once")
    check(ours == theirs, f"{what}: metrics.jsonl differs")


# --- running the program ------------------------------------------------------------------------


class Bench:
    """A tiny real data set, and runs of the program on it."""

    def __init__(self, args, folder):
        self.parax, self.folder = args.parax, folder
        self.steps = args.steps
        self.data = folder / "data"
        for split, count in (("train", 12), ("val", 4)):
            for label in sorted((ROOT / "data/digits" / split).iterdir()):
                (self.data / split / label.name).mkdir(parents=True)
                for image in sorted(label.iterdir())[:count]:
                    shutil.copy(image, self.data / split / label.name)

    def command(self, out, *extra):
        return [str(self.parax), "train", "--data", str(self.data), "--model", "resnet20",
                "--image-size", "32", "--batch", "16", "--instances", "2", "--ema", "0.9",
                "--epochs", "1000", "--max-steps", str(self.steps), "--eval-every", "4",
                "--save-every", "3", "--out", str(out), *extra]

    def start(self, out, *extra):
        with open(str(out) + ".log", "a") as log:
            return subprocess.Popen(self.command(out, *extra), stdout=log, stderr=log)

    def log(self, out):
        return Path(str(out) + ".log").read_text()

    def finish(self, process, out, status=0):
        try:
            process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Failed(f"{out.name} did not end within {LIMIT} s") from None
        check(process.returncode == status,
              f"{out.name}: exit {process.returncode} instead of {status}:\n{self.log(out)}")

    def run(self, out, *extra):
        self.finish(self.start(out, *extra), out)
        return out

    def reference(self):
        """The run that nothing happened to; made once."""
        out = self.folder / "reference"
        return out if out.exists() else self.run(out)


# --- the checks ---------------------------------------------------------------------------------


def in_use(pid):
    """Resident bytes, huge pages included."""
    text = Path(f"/proc/{pid}/status").read_text()
    return sum(int(m) for m in re.findall(r"(?:VmRSS|HugetlbPages):\s*(\d+) kB", text)) * 1024


def huge(pid):
    match = re.search(r"HugetlbPages:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) * 1024 if match else 0


def measure(command, run, every=0.02):
    """Peak bytes, what the first line foretold, and (step, bytes in use) as it went on."""
    log_path = Path(str(run) + ".log")
    with open(log_path, "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    samples, pages = [], 0
    while True:
        try:
            pages = max(pages, huge(process.pid))
            samples.append((last_step(run), in_use(process.pid)))
        except (OSError, TypeError):
            pass
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        time.sleep(every)
    process.returncode = os.waitstatus_to_exitcode(status)
    log = log_path.read_text()
    check(process.returncode == 0, f"exit {process.returncode}:\n{log}")
    number, unit = re.search(r"peak ([\d.]+) (\w+) of", log).groups()
    foretold = float(number) * {"KB": 1e3, "MB": 1e6, "GB": 1e9}[unit]
    return usage.ru_maxrss * 1024 + pages, foretold, samples
