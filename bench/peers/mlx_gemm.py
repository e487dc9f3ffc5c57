#!/usr/bin/env python3
"""One product with affine 4-bit weights, groups of 64, by octalane and by mlx on the CPU, in turns.

    bench/peers/mlx_gemm.py TOOL [--rows 4096 --cols 4096 --tokens 1,32,512] --out docs/results/mlx_gemm_4096x4096.json

TOOL: build/release/octalane, which times its lanes with Q4_K weights of the same shape too. mlx: quantized_matmul on fp32
activations, bfloat16 scales. Both choose their own number of threads. Needs the package mlx[cpu].
"""

import argparse
import json
import statistics
import subprocess
import time

import mlx.core as mx

LANES = ("bf16", "s8.group")
FORMATS = ("mlx-affine-4-g64", "q4_k")


def octalane(options, tokens, lane):
    done = subprocess.run([options.tool, "bench", "gemm", "--format", ",".join(FORMATS), "--rows", str(options.rows),
                           "--cols", str(options.cols), "--tokens", str(tokens), "--lane", lane, "--repeats", "1", "--json"],
                          check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def mlx_seconds(options, tokens):
    mx.random.seed(1)
    weights = mx.random.normal((options.rows, options.cols)).astype(mx.bfloat16)
    codes, scales, biases = mx.quantize(weights, group_size=64, bits=4)
    x = mx.random.normal((tokens, options.cols))
    mx.eval(codes, scales, biases, x)
    start = time.perf_counter()
    mx.eval(mx.quantized_matmul(x, codes, scales, biases, group_size=64, bits=4))
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--cols", type=int, default=4096)
    parser.add_argument("--tokens", default="1,32,512")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--mlx-rounds", type=int, default=1, help="mlx takes minutes for many tokens")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    cells = []
    for tokens in map(int, options.tokens.split(",")):
        samples = {(lane, name): [] for lane in LANES for name in FORMATS}
        slow = []
        for turn in range(options.rounds):
            for lane in LANES:
                said = octalane(options, tokens, lane)
                for cell in said["cells"]:
                    samples[lane, cell["format"]].append(cell["ms"]["median"])
            if turn < options.mlx_rounds:
                slow.append(1e3 * mlx_seconds(options, tokens))
        cell = {"tokens": tokens, "mlx_ms": slow, "octalane_ms": {f"{l} {f}": s for (l, f), s in samples.items()}}
        for lane in LANES:
            ratios = [b / a for a, b in zip(samples[lane, FORMATS[0]], samples[lane, FORMATS[1]])]
            cell[f"{lane}: speed of affine-4-g64 over q4_k"] = {"median": statistics.median(ratios), "all": ratios}
            cell[f"{lane}: over mlx"] = statistics.median(slow) / statistics.median(samples[lane, FORMATS[0]])
        cells.append(cell)
        print(json.dumps({key: value for key, value in cell.items() if ":" in key}), flush=True)
    receipt = {"what": "products with affine 4-bit weights beside mlx on the CPU", "rows": options.rows,
               "cols": options.cols, "machine": said["machine"], "mlx": mx.__version__,
               "command": "bench/peers/mlx_gemm.py build/release/octalane --rows R --cols C --out FILE", "cells": cells}
    with open(options.out, "w") as file:
        file.write(json.dumps(receipt, indent=1) + "\n")


main()
