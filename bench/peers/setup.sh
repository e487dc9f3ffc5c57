#!/usr/bin/env bash
# setup.sh DIR: makes in DIR the Python environment with the systems that octalane is compared with, built for this
# machine: llama.cpp with its ggml (from llama-cpp-python's own source) and oneDNN. Minutes; needs a C++ compiler.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: setup.sh DIR" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)

python3 -m venv "$1"
pip() { nice "$1/bin/python" -m pip --quiet "${@:2}"; }
pip "$1" install numpy==2.4.6 gguf==0.19.0 onednn-devel==2026.1.0
# 2026.2.0 of this package came without the OpenCL adapter, and without it oneDNN finds no CPU.
pip "$1" install --no-deps intel-cmplr-lib-ur==2026.1.2
# No cache: pip would take a wheel that it has built before, for whatever flags.
CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DCMAKE_CXX_FLAGS='-include $here/tile_loadconfig.h'" \
  pip "$1" install --no-cache-dir --no-binary llama-cpp-python llama-cpp-python==0.3.36
echo "cmake --preset release -D OCTALANE_PEERS=$(cd "$1" && pwd)"
