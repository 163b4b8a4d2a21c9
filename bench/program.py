"""Runs programs that must succeed."""

import json
import subprocess
import sys


def fail(command, output):
    sys.exit(f"failed: {' '.join(map(str, command))}\n{output}")


def run_json(command):
    """What the program prints as JSON."""
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        fail(command, result.stdout + result.stderr)
    return json.loads(result.stdout)
