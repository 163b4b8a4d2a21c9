#!/usr/bin/env bash
# Formats every C++ file with clang-format 14.0.6 (versions differ in what they make of a file): the
# system's if it is that one, else a PyPI wheel's, unpacked into .deps/.
#   scripts/format.sh            rewrites the files
#   scripts/format.sh --check    changes nothing; exit status 1 and a list when a file would change
set -euo pipefail
cd "$(dirname "$0")/.."
version=14.0.6
is_right() { command -v "$1" >/dev/null && [[ "$("$1" --version)" == *" $version"* ]]; }

tool=clang-format
if ! is_right "$tool"; then
  tool=.deps/clang-format/clang_format/data/bin/clang-format
  if ! is_right "$tool"; then
    echo "format: unpacking clang-format $version (PyPI wheel) into .deps/clang-format" >&2
    rm -rf .deps/clang-format
    mkdir -p .deps/clang-format
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
      -d .deps/clang-format "clang-format==$version" </dev/null >&2
    python3 -m zipfile -e .deps/clang-format/*.whl .deps/clang-format
    chmod +x "$tool"
  fi
fi

mode=(-i)
case "${1:-}" in
  "") ;;
  --check) mode=(--dry-run --Werror) ;;
  *) echo "format: unknown option '$1' (there is only --check)" >&2; exit 2 ;;
esac
find parax tests bench \( -name '*.cc' -o -name '*.h' \) -print0 | xargs -0 -r "$tool" "${mode[@]}"
