#!/usr/bin/env bash
# Reads the machine code of the CUDA probe's kernels: each loop has the instruction that its row claims and no other that
# multiplies matrices, and none spills but the emulated ones. Exits 77 (skipped) without cuobjdump.
#   bench/cuda_sass.sh [FATBIN, default build/release/src/cuda/probe.fatbin]
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
  # What a loop of this name must consist of. mma.sync on e4m3 is made of HMMA on sm_90.
  function wanted(name) {
    if (name ~ /^wgmma_s8/) return "IGMMA"
    if (name ~ /^wgmma_e4m3/) return "QGMMA"
    if (name ~ /^wgmma_/) return "HGMMA"
    if (name ~ /^mma_s8/) return "IMMA"
    if (name ~ /^mma_/) return "HMMA"
    return "none"
  }
  function finish(   op) {
    if (name == "") return
    loops += wanted(name) != "none"
    line = arch " " name ":"
    for (op in count) {
      line = line " " op " " count[op]
      if (op != wanted(name)) { line = line " WRONG"; failed = 1 }
    }
    if (wanted(name) != "none" && !(wanted(name) in count)) { line = line " NO " wanted(name); failed = 1 }
    if (spills > 0) {
      line = line " spills " spills
      if (name !~ /^mma_e4m3/) { line = line " WRONG"; failed = 1 }
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
