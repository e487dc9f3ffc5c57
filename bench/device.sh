#!/usr/bin/env bash
# Everything that needs a Hopper device, in one go of about eight minutes: the tests, the machine code, the tables with a
# receipt for each, then the memory and race checkers on small shapes. Takes a build made beforehand, here or elsewhere:
# octalane, tests/cuda/cuda_test and bench/cuda/cuda_additive_bench are all it runs.
#   bench/device.sh BUILD_DIR OUT_DIR
set -uo pipefail
build=$(realpath "$1") out=$(realpath -m "$2")
here=$(realpath "$(dirname "$0")")
mkdir -p "$out"
cd "$out" || exit 1
failed=0
step() { # name seconds command...
  local name=$1 limit=$2 begin=$SECONDS
  shift 2
  timeout "$limit" "$@" >"$name.log" 2>&1
  local rc=$?
  if [[ $rc -ne 0 && $rc -ne 77 ]]; then failed=1; fi
  echo "$name: exit $rc after $((SECONDS - begin)) s"
}
test=$build/tests/cuda/cuda_test
# Scalar kernels judge the device's, so the tests share the processor's cores. Those that the host carries out need no
# device.
run_tests() {
  local shards=$(($(nproc) < 12 ? $(nproc) : 12)) i rc=0
  local pids=()
  for ((i = 0; i < shards; ++i)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i timeout 240 "$test" --gtest_brief=1 --gtest_filter=-*Software* >"tests_$i.log" 2>&1 &
    pids+=($!)
  done
  for i in "${pids[@]}"; do wait "$i" || rc=$?; done
  if [[ $rc -ne 0 && $rc -ne 77 ]]; then failed=1; fi
  echo "tests: exit $rc after $SECONDS s, $shards at a time"
  cat tests_*.log >tests.log
}
run_tests
grep -E "FAILED|PASSED|Covered|relative error" tests.log | sort | uniq -c
for part in probe gemm gemm_mma; do
  step "sass_$part" 60 "$here/cuda_sass.sh" "$build/src/cuda/$part.fatbin"
done
products() { # name seconds format tokens rows cols [flags]
  local name=$1 limit=$2
  step "$name" "$limit" bash -c '"$0" bench gemm --device cuda --json --format "$1" --tokens "$2" --rows "$3" --cols "$4" "${@:6}" >"$5.json"' \
    "$build/octalane" "$3" "$4" "$5" "$6" "cuda_$name" "${@:7}"
}
products products_q4_k 100 q4_k 512,2048,4096 14336 4096 --repeats 4
products products_mlx4 100 mlx-affine-4-g64 512,2048,4096 14336 4096 --repeats 4
products products_4096x4096 60 q4_k,mlx-affine-4-g64 512 4096 4096 --repeats 4
products products_others 110 mlx-mxfp4,mlx-mxfp8,mlx-affine-4-g128,q4_0 2048 14336 4096 --repeats 3
products few_tokens 120 q4_k,mlx-affine-4-g64 1,2,4,8,16 14336 4096 --repeats 3 --lane bf16
products few_tokens_wide 60 q4_k,mlx-affine-4-g64 1 4096 14336 --repeats 3 --lane bf16
products products_mma 60 q4_k,mlx-affine-4-g64 512 14336 4096 --repeats 3 --kernel _mma-
for kind in gaussian heavy outlier; do
  products "errors_$kind" 60 q4_k,mlx-mxfp4,mlx-mxfp8 64 2048 4096 --repeats 1 --activations $kind
done
step additive 60 "$build/bench/cuda/cuda_additive_bench" --rounds 3 --out cuda_additive.json
# The receipt of the probe lies beside this script: its loops are measured apart.
step schemes 10 "$here/cuda_schemes.py" --probe "$here/../docs/results/probe_h200.json" \
  --speeds cuda_products_q4_k.json cuda_products_mlx4.json cuda_products_others.json -- cuda_errors_{gaussian,heavy,outlier}.json
cat schemes.log
of='Cuda/CudaProduct.a_token_that*'
small="$of/s8*128x64:$of/bf16*128x64:$of/f8*128x64:$of/*group*single*:$of/*nested_nibble*:$of/mma_*_nibble_128x64:$of/mma_*pair_128x128"
for tool in memcheck racecheck; do
  step "$tool" 60 compute-sanitizer --tool $tool "$test" --gtest_filter="$small:CudaGemv.a_token*" --gtest_brief=1
  grep -E "SUMMARY" "$tool.log"
done
exit $failed
