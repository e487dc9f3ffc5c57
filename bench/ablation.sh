#!/usr/bin/env bash
# ablation.sh OUT ARGUMENTS...: builds octalane whole and once for each stage left out, times them in turns, and writes
# OUT.json, OUT.md and a chart. ARGUMENTS go to bench/peers/gemm.py; LANE (default auto) is the lane, or LANE@ISA.
#   LANE=s8.group@avx2 bench/ablation.sh docs/results/ablation_avx2 --formats q4_k --tokens 1,512
set -euo pipefail
[ $# -ge 1 ] || { echo "usage: ablation.sh OUT ARGUMENTS..." >&2; exit 2; }
cd "$(dirname "$0")/.."
export OCTALANE_RATES=nominal  # every build takes the same kernels
lane=${LANE:-auto}
arms=$lane

build() { # folder, cmake arguments...
  cmake --preset release -B "build/$1" --log-level=WARNING "${@:2}" >/dev/null
  cmake --build "build/$1" --target octalane_cli >/dev/null
}

build release
for stage in no_decode no_activation_load no_drain no_store; do
  build "$stage" -D OCTALANE_ABLATION="$stage" -D OCTALANE_PEERS=
  arms+=,build/$stage:$lane
done
# Ablated kernels have no rates, so all plans are made from the nominal ones.
exec python3 bench/peers/gemm.py --rates nominal --peers "" --octalane "$arms" --out "$@"
