#!/usr/bin/env bash
# fuzz.sh [SECONDS]: builds the fuzzers of the file readers and runs them for SECONDS (60) altogether, under
# AddressSanitizer and UndefinedBehaviorSanitizer, from the committed seeds. Exits 1 on a finding and prints its file.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
if ! [[ $seconds =~ ^[0-9]+$ ]] || [ "$seconds" -lt 6 ]; then
  echo "usage: fuzz.sh [SECONDS], at least 6" >&2
  exit 2
fi

cmake --preset fuzz --log-level=WARNING
cmake --build --preset fuzz

run() { # name, seconds, longest input in bytes
  local name=$1 found=build/fuzz/found-$1 log=build/fuzz/$1.log
  # Inputs that earlier runs on this machine found interesting are kept, and tried again first.
  mkdir -p "build/fuzz/corpus-$name" "$found"
  if "build/fuzz/tests/fuzz/fuzz_$name" -max_total_time="$2" -max_len="$3" -timeout=5 -rss_limit_mb=512 \
    -malloc_limit_mb=64 -print_final_stats=1 -verbosity=0 -print_funcs=0 -artifact_prefix="$found/" \
    -dict="tests/fuzz/$name.dict" "build/fuzz/corpus-$name" "tests/fuzz/corpus/$name" tests/files/golden >"$log" 2>&1; then
    echo "fuzz_$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs in $2 s, no finding"
  else
    tail -n 200 "$log" >&2
    echo "fuzz_$name failed; its input lies in $found" >&2
    return 1
  fi
}

# The .npy header is the smallest grammar, that of safetensors the next.
failed=0
run gguf $((seconds - seconds / 3 - seconds / 6)) 4096 || failed=1
run safetensors $((seconds / 3)) 4096 || failed=1
run npy $((seconds / 6)) 1024 || failed=1
exit $failed
