#!/usr/bin/env bash
# Installs what is missing, builds `parax`, trains a small ResNet on data/digits, and looks at the
# result: held-out accuracy and a few predictions. A few minutes on two cores.
#   scripts/quickstart.sh [flags of parax train]      e.g. --epochs 20 --seed 3
set -euo pipefail
cd "$(dirname "$0")/.."
echo "quickstart: set-up, build and training take about five minutes on two cores"
scripts/setup.sh
cmake --preset release -DPARAX_TESTS=OFF
cmake --build --preset release --target parax

parax=build/release/bin/parax
run=runs/quickstart
rm -rf "$run"
# A mirrored digit is another one, or none: no flips.
"$parax" train --data data/digits --model resnet20 --image-size 16 --flip 0 --pad 1 --epochs 10 \
  --batch 64 --lr 0.1 --nesterov --out "$run" "$@"
echo
echo "Held-out accuracy (data/digits/val, 360 images):"
"$parax" eval --model "$run" --data data/digits --quiet
echo
echo "A few predictions:"
# The first image of every third class: the right answer is the folder's name.
for class in 0 3 6 9; do printf '%s\n' data/digits/val/$class/*.png | head -n 1; done |
  "$parax" predict --model "$run" --top 2 --quiet -
