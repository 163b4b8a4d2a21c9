#!/usr/bin/env bash
# Installs what ParaX needs and this machine lacks: Debian or Ubuntu packages by apt, and oneDNN 3
# (by apt where the distribution has 3.1 or newer, else as PyPI wheels unpacked into .deps/).
# Safe to run twice; touches neither network nor system when nothing is missing. Not root: prints
# the one line to run as root and stops. Libraries under CMAKE_PREFIX_PATH count as present.
#   scripts/setup.sh [--bench]      --bench: also what bench/ needs
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "setup: $*" >&2; }

# command:package, then header:package.
commands="g++:build-essential cmake:cmake ninja:ninja-build pkg-config:pkg-config"
headers="hwloc.h:libhwloc-dev numa.h:libnuma-dev tbb/version.h:libtbb-dev Eigen/Core:libeigen3-dev
  CLI/CLI.hpp:libcli11-dev spdlog/spdlog.h:libspdlog-dev fmt/core.h:libfmt-dev
  nlohmann/json.hpp:nlohmann-json3-dev jpeglib.h:libjpeg-dev png.h:libpng-dev
  gtest/gtest.h:libgtest-dev"
case "${1:-}" in
  "") ;;
  --bench) headers+=" benchmark/benchmark.h:libbenchmark-dev" ;;
  *) say "unknown option '$1' (there is only --bench)"; exit 2 ;;
esac
[ "$(id -u)" -eq 0 ] && root=yes || root=no
[ "$root" = yes ] && commands+=" ccache:ccache"  # only speeds up rebuilding: never asked for

# The folders of CMAKE_PREFIX_PATH (separated by ; or :) as include options.
includes=()
IFS=';:' read -ra prefixes <<<"${CMAKE_PREFIX_PATH:-}"
for prefix in ${prefixes[@]+"${prefixes[@]}"}; do
  for sub in include include/eigen3; do includes+=(-I "$prefix/$sub"); done
done
includes+=(-I /usr/include/eigen3)
preprocess() { g++ -E -P -x c++ "${includes[@]}" - 2>/dev/null; }

# Prints the packages that are missing, one a line. Without a compiler headers cannot be looked up:
# then every library is named, which apt takes lightly when some are there.
missing_packages() {
  local pair
  for pair in $commands; do
    command -v "${pair%:*}" >/dev/null || echo "${pair#*:}"
  done
  for pair in $headers; do
    if command -v g++ >/dev/null; then
      printf '#if !__has_include(<%s>)\n%s\n#endif\n' "${pair%:*}" "${pair#*:}" | preprocess
    else
      echo "${pair#*:}"
    fi
  done
}

have_onednn() {
  [ -e .deps/onednn/lib/cmake/dnnl/dnnl-config.cmake ] && return
  command -v g++ >/dev/null && preprocess <<'END' | grep -q ok
#if __has_include(<oneapi/dnnl/dnnl_version.h>)
#include <oneapi/dnnl/dnnl_version.h>
#if DNNL_VERSION_MAJOR == 3 && DNNL_VERSION_MINOR >= 1
ok
#endif
#endif
END
}

# Whether apt offers libdnnl-dev 3.1 or newer. Debian numbers it "3.1.1-2", or with an epoch.
apt_has_onednn() {
  local version
  version=$(apt-cache policy libdnnl-dev 2>/dev/null | sed -n 's/^ *Candidate: *//p')
  [[ "${version#*:}" =~ ^3\.[1-9] ]]
}

have_pip() { python3 -m pip --version >/dev/null 2>&1; }

# Installs the packages, or says what to run and stops. apt's lists are refreshed once.
updated=no
update_lists() {
  if [ "$updated" = no ] && [ "$root" = yes ]; then
    say "refreshing apt's package lists"
    apt-get update -qq </dev/null >&2
    updated=yes
  fi
}
install() {
  if ! command -v apt-get >/dev/null; then
    say "this is neither Debian nor Ubuntu; install these, or set CMAKE_PREFIX_PATH: $*"
    exit 1
  fi
  if [ "$root" = no ]; then
    say "packages are missing; run as root:"
    echo "apt-get update && apt-get install -y --no-install-recommends $*"
    exit 1
  fi
  update_lists
  say "installing by apt: $*"
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" \
    </dev/null >&2
}

install_onednn_wheels() {
  say "unpacking oneDNN 3.2 (PyPI wheels) into .deps/onednn"
  local work
  mkdir -p .deps
  work=$(mktemp -d .deps/unpack.XXXXXX)
  # shellcheck disable=SC2064
  trap "rm -rf '$work'" EXIT
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --require-hashes -r scripts/onednn-wheels.txt -d "$work" </dev/null >&2
  local wheel
  for wheel in "$work"/*.whl; do python3 -m zipfile -e "$wheel" "$work/files"; done
  mkdir "$work/onednn"
  local folder
  for folder in "$work"/files/*.data/data; do
    cp -a "$folder/include" "$folder/lib" "$work/onednn/" 2>/dev/null || true
  done
  # Wheels cannot hold links: the three names of the library are one file.
  (cd "$work/onednn/lib" && ln -sf libdnnl.so.3.2 libdnnl.so.3 && ln -sf libdnnl.so.3 libdnnl.so)
  rm -rf .deps/onednn
  mv "$work/onednn" .deps/onednn  # last, so that a stopped run leaves nothing half done
}

mapfile -t missing < <(missing_packages)
if ! have_onednn; then
  update_lists
  if apt_has_onednn; then
    missing+=(libdnnl-dev)
  elif ! have_pip; then
    missing+=(python3-pip)
  fi
fi
[ ${#missing[@]} -eq 0 ] || install "${missing[@]}"

# A distribution's cmake may be present and too old.
required=$(sed -n 's/^cmake_minimum_required(VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
found=$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')
if [ "$(printf '%s\n' "$required" "$found" | sort -V | head -n 1)" != "$required" ]; then
  say "cmake $found is too old: $required or newer is needed (python3 -m pip install cmake has it)"
  exit 1
fi
have_onednn || install_onednn_wheels
say "everything needed is here"
