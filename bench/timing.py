"""What every measured process has in common: warm-up, a common start, rates and latencies."""

import json
import os
import statistics
import sys
import time

SEGMENTS = 10


def rate(ends, images):
    """Images a second: the median of up to ten parts with as many pieces of work each. `ends`: when
    they ended, the first one at the measurement's begin."""
    count = min(SEGMENTS, len(ends) - 1)
    marks = [round(i * (len(ends) - 1) / count) for i in range(count + 1)]
    return statistics.median(images * (b - a) / (ends[b] - ends[a])
                             for a, b in zip(marks, marks[1:]))


def await_start():
    """Lets whoever started several processes begin their measurements together."""
    print("ready", flush=True)
    sys.stdin.readline()


def measure(step, seconds, images, agree=lambda go_on: go_on):
    """Repeats `step`, which takes `images` through; the result as report() wants it. `agree`: what
    all processes that must do equally many steps decide, each knowing its own wish."""
    begin = time.perf_counter()
    step()  # compiles
    step()
    while agree(time.perf_counter() - begin < seconds / 5):
        step()
    await_start()
    ends = [time.perf_counter()]
    while agree(len(ends) < 4 or ends[-1] - ends[0] < seconds):
        step()
        ends.append(time.perf_counter())
    latency = statistics.median(b - a for a, b in zip(ends, ends[1:]))
    return {"images_per_s": rate(ends, images), "latency_ms": 1e3 * latency}


def report(result, version):
    """Prints the result and ends the process, at once: OpenVINO can hang while it is destroyed."""
    print(json.dumps(dict(result, version=version)), flush=True)
    os._exit(0)
