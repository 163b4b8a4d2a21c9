#!/usr/bin/env bash
# Looks for faults with the compiler's sanitizers. Takes long: scripts/test.sh does not do it.
#   scripts/sanitize.sh asan [arguments of ctest]   the whole suite: addresses, leaks, undefined
#                                                   behaviour
#   scripts/sanitize.sh tsan                        races: the tests whose threads share memory
#   scripts/sanitize.sh fuzz [SECONDS [TARGET...]]  every fuzz target for so long (600), two
#                                                   at once, from its corpus; needs clang and libomp
#                                                   (apt: clang libomp-dev)
# Fails when anything is found. CMAKE_BUILD_PARALLEL_LEVEL limits the build's jobs.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-}
shift || true

build() {  # PRESET TARGET...
  scripts/setup.sh
  cmake --preset "$1" -DPARAX_TESTS=ON
  cmake --build --preset "$1" --target "${@:2}"
}

case $what in
  asan)
    export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
    export UBSAN_OPTIONS=print_stacktrace=1
    exec scripts/test.sh asan "$@"
    ;;
  tsan)
    folders="base numa sched gradserver data training"
    build tsan $(printf 'test_%s ' $folders)
    export TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp halt_on_error=1" OMP_NUM_THREADS=1
    for folder in $folders; do build/tsan/tests/$folder/test_$folder --gtest_brief=1; done
    ;;
  fuzz)
    seconds=${1:-600}
    shift || true
    [ $# -gt 0 ] || set -- config image index machine safetensors
    build fuzz "${@/#/fuzz_}"
    export ASAN_OPTIONS=strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
    # What is new goes to build/fuzz/corpus, what crashes to build/fuzz/crashes: small files for the
    # tree's corpus, once mended.
    mkdir -p build/fuzz/crashes
    printf '%s\n' "$@" | xargs -P 2 -I@ bash -c '
      mkdir -p build/fuzz/corpus/@
      build/fuzz/tests/fuzz/fuzz_@ -max_total_time='"$seconds"' -timeout=30 -print_final_stats=1 \
        -artifact_prefix=build/fuzz/crashes/@- build/fuzz/corpus/@ tests/fuzz/corpus/@ \
        >build/fuzz/@.log 2>&1 && verdict=ok || verdict=FAILED
      inputs=$(sed -n "s/stat::number_of_executed_units: *//p" build/fuzz/@.log)
      echo "fuzz @: $inputs inputs: $verdict"
      [ $verdict = ok ] || { tail -n 40 build/fuzz/@.log; exit 1; }'
    ;;
  *)
    echo "sanitize: say asan, tsan or fuzz" >&2
    exit 2
    ;;
esac
