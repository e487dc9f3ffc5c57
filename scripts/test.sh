#!/usr/bin/env bash
# test.sh: everything that must hold before a change lands. Goes on after a failure, so that one run shows them all,
# closes with one line a step, and exits 1 if any step failed.
set -uo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc)
failed=0
report=""

step() { # name, command...
  local name=$1 start=$SECONDS verdict=ok
  shift
  printf '\n==== %s\n' "$name"
  if ! "$@"; then
    verdict=FAILED
    failed=1
  fi
  report+=$(printf '%-8s %5d s  %s' "$verdict" $((SECONDS - start)) "$name")$'\n'
}

build() { # preset
  cmake --preset "$1" --log-level=WARNING -D CMAKE_COMPILE_WARNING_AS_ERROR=ON && cmake --build --preset "$1" -j "$jobs"
}
# Tests named slow take minutes under the sanitizers; the release pass runs them.
run_tests() { # preset, ctest arguments
  ctest --test-dir "build/$1" --output-on-failure --no-tests=error -j "$jobs" "${@:2}"
}

step "format" scripts/format.sh format-check
step "model" scripts/fetch_model.sh
step "build release" build release
step "build asan" build asan
step "golden files" scripts/check_golden.sh
step "fuzz for 60 s" scripts/fuzz.sh 60
step "tests with AddressSanitizer and UndefinedBehaviorSanitizer" run_tests asan --label-exclude slow
step "tests, release" run_tests release

printf '\n==== summary\n%s' "$report"
exit $failed
