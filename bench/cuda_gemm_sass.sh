#!/usr/bin/env bash
# Reads the machine code of the product kernels: each multiplies by the instruction of its lane and by no other (but
# s8.nested's minima, which take the 16-bit one). Exits 77 (skipped) without cuobjdump.
#   bench/cuda_gemm_sass.sh [FATBIN, default build/release/src/cuda/gemm.fatbin]
set -euo pipefail
fatbin=${1:-$(dirname "$0")/../build/release/src/cuda/gemm.fatbin}
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
  function allowed(op) {
    if (name ~ /^s8_nested/) return op == "IGMMA" || op == "HGMMA"
    if (name ~ /^s8_/) return op == "IGMMA"
    if (name ~ /^f8_/) return op == "QGMMA"
    return op == "HGMMA"
  }
  function finish(   op, line) {
    if (name == "") return
    ++kernels
    line = name ":"
    for (op in count) {
      line = line " " op " " count[op]
      if (!allowed(op)) { line = line " WRONG"; failed = 1 }
    }
    if (length(count) == 0) { line = line " nothing multiplies WRONG"; failed = 1 }
    if (spills > 0) line = line " spills " spills
    print line
    delete count
    spills = 0
  }
  /Function :/ { finish(); name = $3 }
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
    if (kernels == 0) { print "no kernels found"; failed = 1 }
    exit failed
  }'
