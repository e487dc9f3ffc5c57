#!/usr/bin/env python3
"""Draws receipts of `bench gemm --device cuda` as SVG, each beside its receipt.

    bench/cuda_chart.py docs/results/cuda_products_*.json docs/results/cuda_few_tokens.json

Products beside the vendor's: TOP/s of each lane's fastest kernel. Without the vendor's (few tokens): microseconds by
tokens beside the time that reading the weights takes, at the memory's rate in the file of bench/cuda_rates.py (--rates).
"""

import argparse
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "peers")]
import chart  # noqa: E402
from cuda_rates import read_receipt  # noqa: E402

LANES = ["bf16", "s8.group", "s8.nested", "s8.block", "s8.xblock", "s8.row", "f8.group", "f8.row"]
VENDOR = ["cublaslt bf16", "cublaslt int8", "cublaslt fp8"]


def times(arm):
    """Least, median and most milliseconds."""
    ms = arm["samples"]["ms"]
    return ms["min"], ms["median"], ms["max"]


def fastest(arms, key):
    """{key: the arm of it with the least median}."""
    best = {}
    for arm in arms:
        name = key(arm)
        if name not in best or times(arm)[1] < times(best[name])[1]:
            best[name] = arm
    return best


def products(receipt):
    groups = {}
    formats = {cell["format"] for cell in receipt["cells"]}
    shapes = {tuple(cell[key] for key in ("tokens", "rows", "cols")) for cell in receipt["cells"]}
    for cell in receipt["cells"]:
        shape = f'{cell["tokens"]} x {cell["rows"]} x {cell["cols"]}'
        operations = 2e-9 * cell["tokens"] * cell["rows"] * cell["cols"]
        best = fastest(cell["arms"], lambda arm: arm.get("lane", arm["name"]))
        groups[shape if len(formats) == 1 else cell["format"]] = {
            name: tuple(operations / ms for ms in reversed(times(arm))) for name, arm in best.items()}
    title = "Products with " + ", ".join(dict.fromkeys(cell["format"] for cell in receipt["cells"]))
    if len(shapes) == 1:
        title = f"Products, {shape}"
    unit = f'TOP/s on one {receipt["device"].split(":")[0]}, median; lines from least to most; tokens x rows x columns'
    return chart.bars(title, unit, groups, LANES + VENDOR)


def sort_of(arm):
    found = re.match(r".+_(gem[mv])_\d+x(\d+)x\d+_cuda-", arm["name"])
    return "few tokens' kernel" if found[1] == "gemv" else f"tiles of {found[2]} tokens"


def few_tokens(receipt, memory):
    panels = {}
    for cell in receipt["cells"]:
        panel = panels.setdefault(f'{cell["format"]}, {cell["rows"]} x {cell["cols"]}', {})
        best = fastest(cell["arms"], sort_of)
        for name, arm in best.items():
            panel.setdefault(name, {})[cell["tokens"]] = tuple(1e3 * ms for ms in times(arm))
        reading = 1e6 * cell["arms"][0]["weight_bytes"] / memory
        panel.setdefault(f"reading the weights, {memory / 1e12:.2f} TB/s", {})[cell["tokens"]] = (reading,) * 3
    series = {name: [chart.Series(*line) for line in sorted(panel.items())] for name, panel in panels.items()}
    unit = f'microseconds in lane bf16 on one {receipt["device"].split(":")[0]}; median, bars from least to most'
    return chart.svg("Products of few tokens", unit, series)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("receipts", nargs="+")
    parser.add_argument("--rates", default=os.path.join(HERE, "..", "docs", "results", "cuda_rates_h200.json"))
    options = parser.parse_args()
    for path in options.receipts:
        receipt = read_receipt(path)
        if any("lane" not in arm for cell in receipt["cells"] for arm in cell["arms"]):
            drawing = products(receipt)
        else:
            with open(options.rates, encoding="utf-8") as file:
                drawing = few_tokens(receipt, json.load(file)["memory_bytes_per_second"])
        with open(os.path.splitext(path)[0] + ".svg", "w", encoding="utf-8") as file:
            file.write(drawing)


if __name__ == "__main__":
    main()
