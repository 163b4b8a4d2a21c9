#!/usr/bin/env bash
# Makes the comparison table; bench/README.md tells how. Flags: see --help.
#   PYTHON=torch-env/bin/python bench/run.sh --models resnet50 --only train
set -euo pipefail
here="$(dirname "$0")"
python="${PYTHON:-}"
if [[ -z "$python" ]]; then
  python="$here/../torch-env/bin/python"
  [[ -x "$python" ]] || python=python3
fi
exec "$python" "$here/compare.py" "$@"
