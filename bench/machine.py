"""What the figures depend on, and what is missing to make them."""

import ctypes.util
import glob
import os
import pathlib
import platform
import subprocess
import sys

PACKAGES = ("torch", "torchvision", "openvino", "onnxruntime", "onnx", "onnxscript")


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


def cores():
    """The first usable hardware thread of each usable physical core."""
    first = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = read(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        first.setdefault(siblings or cpu, cpu)
    return sorted(first.values())


def cores_of_one_domain():
    """cores(), which must lie in one NUMA domain: `barriered` then is one instance."""
    usable = cores()
    nodes = {node for cpu in usable for node in glob.glob(f"/sys/devices/system/cpu/cpu{cpu}/node*")}
    if len({os.path.basename(node) for node in nodes}) > 1:
        sys.exit("barriered and the others are compared within one NUMA domain: run this under "
                 "numactl --cpunodebind=0 --membind=0")
    return usable


def facts():
    cpuinfo = read("/proc/cpuinfo")
    model = [line.split(":", 1)[1].strip() for line in cpuinfo.splitlines()
             if line.startswith("model name")]
    return {
        "cpu": model[0] if model else platform.processor(),
        "cores": len(cores()),
        "avx512": " avx512f" in cpuinfo, "avx512_bf16": " avx512_bf16" in cpuinfo,
        "amx": " amx_tile" in cpuinfo,
        "kernel": platform.release(),
        "transparent_hugepage": read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "governor": read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "unknown",
        "load_at_start": os.getloadavg()[0],
    }


def check(python, parax, packages):
    """Ends the program with a line when something is missing."""
    if not os.access(parax, os.X_OK):
        sys.exit(f"{parax} is not there: build it, or name it with --parax")
    code = "import importlib.util, sys\nprint(*[p for p in sys.argv[1:] if not importlib.util.find_spec(p)])"
    try:
        missing = subprocess.run([python, "-c", code, *packages], capture_output=True, text=True,
                                 check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"{python} cannot be run: {error}")
    if missing:
        sys.exit(f"{python} has no {missing}: {python} -m pip install -r bench/requirements.txt")
