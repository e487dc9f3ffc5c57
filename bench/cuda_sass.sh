#!/usr/bin/env bash
# Reads the machine code of CUDA kernels. Each loop of the probe has the instruction that its row claims, as often as its
# source (the assembler may find that products repeat, and drop them), and no other that multiplies matrices; none spills
# but the emulated ones. Each product kernel multiplies by the instruction of its lane and by no other, but s8.nested's
# minima, which take the 16-bit one. Exits 77 (skipped) without cuobjdump.
#   bench/cuda_sass.sh [FATBIN, default build/release/src/cuda/probe.fatbin; gemm.fatbin and gemm_mma.fatbin have the products]
set -euo pipefail
fatbin=${1:-$(dirname "$0")/../build/release/src/cuda/probe.fatbin}
cuobjdump=${CUOBJDUMP:-cuobjdump}
if ! command -v "$cuobjdump" >/dev/null; then
  echo "skipped: no cuobjdump here"
  exit 77
fi
if [[ ! -e $fatbin ]]; then
  echo "skipped: no $fatbin, built without nvcc"
  exit 77
fi
"$cuobjdump" --dump-sass "$fatbin" | awk '
  function is_product(name) { return name ~ /^(mma_)?(s8|bf16|f8)_/ && name !~ /_drain_/ }
  # What a kernel of this name must consist of. mma.sync on e4m3 is made of HMMA on sm_90.
  function wanted(name) {
    if (name ~ /^s8_/) return "IGMMA"
    if (name ~ /^f8_/) return "QGMMA"
    if (name ~ /^bf16_/) return "HGMMA"
    if (name ~ /^wgmma_s8/) return "IGMMA"
    if (name ~ /^wgmma_e4m3/) return "QGMMA"
    if (name ~ /^wgmma_/) return "HGMMA"
    if (name ~ /^mma_s8/) return "IMMA"
    if (name ~ /^mma_/) return "HMMA"
    return "none"
  }
  # How often, or a multiple of it: an iteration of mma.sync, a group between drains of wgmma; products, at all.
  function times(name) {
    if (is_product(name)) return 1
    if (name ~ /^mma_e4m3/) return 256
    if (name ~ /^mma_/) return 128
    if (match(name, /drain_[0-9]+$/)) return substr(name, RSTART + 6) / 32
    return 16
  }
  function allowed(op) { return op == wanted(name) || (name ~ /^s8_nested/ && op == "HGMMA") || (name ~ /^mma_s8_nested/ && op == "HMMA") }
  function finish(   op) {
    if (name == "") return
    loops += wanted(name) != "none"
    line = arch " " name ":"
    for (op in count) {
      line = line " " op " " count[op]
      if (!allowed(op)) { line = line " WRONG"; failed = 1 }
    }
    if (wanted(name) != "none" && (count[wanted(name)] == 0 || count[wanted(name)] % times(name) != 0)) {
      line = line " WRONG: " times(name) " of " wanted(name) " wanted"
      failed = 1
    }
    if (spills > 0) {
      line = line " spills " spills
      if (name !~ /^mma_e4m3/ && !is_product(name)) { line = line " WRONG"; failed = 1 }
    }
    print line
    delete count
    spills = 0
  }
  /arch = / { next_arch = $3 }
  /Function :/ { finish(); name = $3; arch = next_arch }
  {
    for (i = 1; i <= NF; ++i) {
      op = $i
      sub(/\..*/, "", op)
      if (op ~ /^[A-Z]*MMA$/) ++count[op]
      if (op == "STL" || op == "LDL") ++spills
    }
  }
  END {
    finish()
    if (loops == 0) { print "no loops found"; failed = 1 }
    exit failed
  }'
