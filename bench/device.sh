#!/usr/bin/env bash
# Everything that needs a Hopper device, in one go of about six minutes: the tests, the machine code, the tables with a
# receipt for each, then the memory and race checkers on small shapes. Takes a build made beforehand, here or elsewhere;
# bench/cuda_bench and tests/cuda/cuda_test are all it runs.
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
test=$build/tests/cuda/cuda_test bench=$build/bench/cuda/cuda_bench
step tests 120 "$test" --gtest_brief=1
grep -E "FAILED|PASSED|Covered|relative error" tests.log
for part in probe gemm; do
  script=$here/cuda_sass.sh
  [[ $part = gemm ]] && script=$here/cuda_gemm_sass.sh
  step "sass_$part" 60 "$script" "$build/src/cuda/$part.fatbin"
done
large=2048x14336x4096,4096x14336x4096
step products_q4_k 120 "$bench" --rounds 4 --memory --format q4_k --shape $large,512x4096x4096,512x14336x4096 --out cuda_products_q4_k.json
step products_mlx4 100 "$bench" --rounds 4 --format mlx-affine-4-g64 --shape $large,512x4096x4096 --out cuda_products_mlx4.json
step products_others 90 "$bench" --rounds 3 --format mlx-mxfp4,mlx-affine-4-g128,q4_0 --shape 2048x14336x4096 --out cuda_products_others.json
step few_tokens 60 "$bench" --format q4_k,mlx-affine-4-g64 --lanes bf16 --no-peers --rounds 3 \
  --shape 1x14336x4096,2x14336x4096,4x14336x4096,8x14336x4096,16x14336x4096,1x4096x14336 --out cuda_few_tokens.json
step additive 60 "$bench" --additive --rounds 3 --out cuda_additive.json
grep -hE "tokens x|TOP/s" products_*.log few_tokens.log
small='Cuda/CudaProduct.a_token_that*/*128x64:Cuda/CudaProduct.a_token_that*/*group*single*:Cuda/CudaProduct.a_token_that*/*nested_nibble*'
for tool in memcheck racecheck; do
  step "$tool" 60 compute-sanitizer --tool $tool "$test" --gtest_filter="$small:CudaGemv.a_token*" --gtest_brief=1
  grep -E "SUMMARY" "$tool.log"
done
exit $failed
