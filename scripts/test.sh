#!/usr/bin/env bash
# Installs what is missing, builds everything (warnings are errors) and runs every test. Closes with
# "N passed, N failed, N skipped"; tests of data or hardware that is not there are skipped.
#   scripts/test.sh [preset] [arguments of ctest]      preset: release (default), debug, asan, tsan
set -euo pipefail
cd "$(dirname "$0")/.."
preset=release
if [[ "${1:-}" =~ ^[a-z]+$ ]]; then preset=$1; shift; fi
report=$PWD/build/$preset/tests.xml

# Whatever stops us before the tests have run counts as a failure.
closed=no
trap '[ $closed = yes ] || echo "0 passed, 1 failed"' EXIT

scripts/setup.sh
cmake --preset "$preset" -DPARAX_TESTS=ON -DPARAX_BENCH=ON
cmake --build --preset "$preset"
rm -f "$report"
status=0
# Two at once: many tests run several threads of their own.
ctest --test-dir "build/$preset" -j2 --output-on-failure --no-tests=error --output-junit "$report" \
  "$@" </dev/null || status=$?

count() { sed -n "/<testsuite/,/>/s/.*[ \t]$1=\"\([0-9]*\)\".*/\1/p" "$report" | head -n 1; }
if [ -s "$report" ]; then
  total=$(count tests) failed=$(count failures) skipped=$(count skipped)
  if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then failed=1 total=$((total + 1)); fi
  closed=yes
  [ "$skipped" = 0 ] || echo "why tests were skipped:"
  sed -n '/: Skipped$/{n;s/^/  /p}' "$report" | sort | uniq
  echo "$((total - failed - skipped)) passed, $failed failed, $skipped skipped"
fi
exit "$status"
