#!/usr/bin/env python3
"""Prints what each lane of a CUDA device costs and keeps, a table in Markdown for each format.

    bench/cuda_schemes.py --probe docs/results/probe_h200.json --speeds cuda_products_*.json -- cuda_errors_*.json

--probe is a receipt of `probe --device cuda`, --speeds are receipts of `bench gemm --device cuda` on large shapes, the
others receipts of it with --activations gaussian, heavy and outlier. The ceiling is what the lane's instruction reached
in the probe with drains as often as the lane has them, in TOP/s; the share is of what it reached without any. Errors
are relative L2 distances: of re-encoded weights from the format's, and of outputs from fp64 on the format's weights
and activations that nothing was done to; with an outlier over the norm of the outputs without its channel, which would
hide that all others were lost.
"""

import argparse
import re

from cuda_rates import read_receipt

LANES = ["bf16", "s8.group", "s8.nested", "s8.block", "s8.xblock", "s8.row", "f8.group", "f8.row"]
KINDS = ["gaussian", "heavy", "outlier"]
INSTRUCTIONS = {"bf16": "wgmma.bf16", "s8": "wgmma.s8", "f8": "wgmma.e4m3"}
DRAINS = {"s8.nested": "256", "s8.block": "256", "s8.xblock": "256"}  # columns from drain to drain
NONE = "-"


def rates_of(path):
    """{instruction: (rate without drains, {columns: rate})} in TOP/s."""
    rates = {}
    for rate in read_receipt(path, "rates")["rates"]:
        drains = {columns: spread["median"] for columns, spread in rate["drains"].items() if spread}
        rates[rate["instruction"]] = rate["tops"]["median"], drains
    return rates


def best_arms(cell):
    """{lane: its fastest gemm}."""
    best = {}
    for arm in cell["arms"]:
        if "lane" in arm and "_gemm_" in arm["name"]:
            known = best.get(arm["lane"])
            if known is None or arm["tops"] > known["tops"]:
                best[arm["lane"]] = arm
    return best


def speeds_of(paths):
    """{format: {lane: arm}} of the cells with the most tokens, and a text that names each format's shape."""
    cells = {}
    for path in paths:
        for cell in read_receipt(path)["cells"]:
            known = cells.get(cell["format"])
            if known is None or cell["tokens"] > known["tokens"]:
                cells[cell["format"]] = cell
    shapes = {name: f'{cell["tokens"]} x {cell["rows"]} x {cell["cols"]}' for name, cell in cells.items()}
    return {name: best_arms(cell) for name, cell in cells.items()}, shapes


def errors_of(paths):
    """{format: {lane: {"weights": error, kind: error}}}; of several kernels of a lane the largest."""
    errors, seen = {}, set()
    for path in paths:
        receipt = read_receipt(path)
        kind = receipt.get("activations")
        if kind not in KINDS:
            raise SystemExit(f"{path}: wanted activations {', '.join(KINDS)}, got {kind!r}")
        seen.add(kind)
        for cell in receipt["cells"]:
            for arm in cell["arms"]:
                if "lane" not in arm or "_gemm_" not in arm["name"]:
                    continue
                of_lane = errors.setdefault(cell["format"], {}).setdefault(arm["lane"], {})
                of_lane[kind] = max(of_lane.get(kind, 0.0), arm["rest_error"])
                of_lane["weights"] = arm["weight_error"]
    missing = [kind for kind in KINDS if kind not in seen]
    if missing:
        raise SystemExit(f"wanted receipts of all kinds of activations, got none of {', '.join(missing)}")
    return errors


def ceiling(lane, arm, rates):
    """The probe's rate for the lane's drains and without any; None where it has no such loop."""
    whole, drains = rates[INSTRUCTIONS[lane.split(".")[0]]]
    if lane in ("bf16", "s8.row", "f8.row"):  # f8.row's promotions every 512 columns are no drains of the probe
        return whole, whole
    columns = DRAINS.get(lane)
    if columns is None and arm is not None:
        columns = re.search(r"-g(\d+)$", arm["name"])[1]
    return drains.get(columns), whole


def percent(value):
    return NONE if value is None else f"{100 * value:.2f} %"


def row_of(lane, errors, arm, rates):
    most, whole = ceiling(lane, arm, rates)
    reached = NONE if arm is None else f'{arm["tops"]:.0f}'
    share = NONE if arm is None else f'{100 * arm["tops"] / whole:.0f} %'
    kinds = [percent(errors.get(kind)) for kind in KINDS]
    weights = "0" if errors["weights"] == 0 else percent(errors["weights"])
    return [lane, NONE if most is None else f"{most:.0f}", reached, share, weights, *kinds]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probe", required=True)
    parser.add_argument("--speeds", nargs="+", default=[])
    parser.add_argument("errors", nargs="+")
    options = parser.parse_args()
    rates = rates_of(options.probe)
    speeds, shapes = speeds_of(options.speeds)
    for name, lanes in errors_of(options.errors).items():
        print(f'{name}; speeds of {shapes.get(name, "no shape")}\n')
        columns = ["scheme", "ceiling, TOP/s", "reached, TOP/s", "of the peak", "weights re-encoded", *KINDS]
        print("| " + " | ".join(columns) + " |")
        print("|---" + "|---:" * (len(columns) - 1) + "|")
        for lane in (lane for lane in LANES if lane in lanes):
            print("| " + " | ".join(row_of(lane, lanes[lane], speeds.get(name, {}).get(lane), rates)) + " |")
        print()


if __name__ == "__main__":
    main()
