#!/usr/bin/env python3
"""Makes a file of a device's rates, as src/probe/cuda_rates_file.h reads it, from receipts of `bench gemm --device cuda`.

    bench/cuda_rates.py docs/results/cuda_products_*.json docs/results/cuda_few_tokens*.json --out FILE

Fits the cost of src/cuda/plan.cpp to each kernel's medians by least squares of relative errors; prints what is left:

    gemm: max(fixed + waves of tiles * panels * panel_seconds, fixed + bytes / memory,
              tiles per SM * panels * power_seconds)
    gemv: launches * (fixed + bytes / bytes_per_second)

A gemm's fixed part comes from cells that differ in waves times panels where the clock holds; a kernel with no two of
them has the median of the others'. A kernel measured in one shape, or never with idle multiprocessors, has the ratio of
power_seconds to panel_seconds of its lane and tile in other codes. Cells whose tokens fill less than half a tile are
left out and printed as predictions: a tile then takes up to 1.8 times as long, but fewer tokens have faster kernels.
gemvs were measured on equally many bytes: their fixed part is FIXED. What their two shapes differ by is not described.
"""

import argparse
import collections
import json
import math
import re
import statistics

FIXED = 4e-6  # of a launch: what plan.cpp takes without measurements
GRID = [i * 5e-8 for i in range(241)]  # of fixed parts: up to 12 us
IDLE = 0.9  # of the places of all waves: below, some multiprocessors have nothing to do for long

Cell = collections.namedtuple("Cell", "where seconds tokens works busy bytes")


def read_receipt(path, key="cells"):
    """The document, which has a list by that name."""
    try:
        with open(path, encoding="utf-8") as file:
            receipt = json.load(file)
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path}: wanted a receipt, got: {error}") from error
    if not isinstance(receipt, dict) or not isinstance(receipt.get(key), list):
        raise SystemExit(f"{path}: wanted a receipt with {key}, got something else")
    return receipt


def parse_device(text):
    """Of cuda::describe."""
    found = re.match(r"(.+): compute capability (\d+)\.(\d+), (\d+) SMs ", text)
    if not found:
        raise SystemExit(f"device: wanted what octalane prints, got {text!r}")
    return {"name": found[1], "capability": 10 * int(found[2]) + int(found[3]), "multiprocessors": int(found[4])}


def shape_of(kernel):
    """(lane and whether by mma.sync, "gemm" or "gemv", rows, tokens)."""
    found = re.match(r"(.+)_(gem[mv])_(\d+)x(\d+)x\d+_(cuda|mma)-", kernel)
    if not found:
        raise SystemExit(f"{kernel}: wanted the name of a kernel of a device")
    return f"{found[1]} {found[5]}", found[2], int(found[3]), int(found[4])


def read(paths):
    """The device, its memory's bytes per second, {kernel: [Cell]}."""
    device, memory, kernels = None, None, collections.defaultdict(list)
    for path in paths:
        receipt = read_receipt(path)
        here = parse_device(receipt["device"])
        if device not in (None, here):
            raise SystemExit(f"{path}: wanted the device of the other receipts, got another")
        device = here
        if "memory" in receipt:  # the two largest sets: far beyond L2
            largest = sorted(receipt["memory"], key=lambda set_: set_["bytes"])[-2:]
            memory = statistics.median(set_["gbps"] for set_ in largest) * 1e9
        for cell in receipt["cells"]:
            for arm in cell["arms"]:
                if "lane" in arm:
                    kernels[arm["name"]].append(cell_of(cell, arm, device))
    if memory is None:
        raise SystemExit("wanted a receipt with memory rates, got none")
    return device, memory, kernels


def cell_of(cell, arm, device):
    _, kind, rows, tokens = shape_of(arm["name"])
    where = f'{cell["format"]} {cell["tokens"]} x {cell["rows"]} x {cell["cols"]}'
    seconds = arm["samples"]["ms"]["median"] * 1e-3
    if kind == "gemv":
        return Cell(where, seconds, cell["tokens"], 0, 0, arm["weight_bytes"])
    tiles = math.ceil(cell["tokens"] / tokens) * math.ceil(cell["rows"] / rows)
    panels = math.ceil(cell["cols"] / 128)
    waves = math.ceil(tiles / device["multiprocessors"])
    return Cell(where, seconds, cell["tokens"], waves * panels, tiles / device["multiprocessors"] * panels,
                arm["weight_bytes"])


def gemm_seconds(rate, cell, memory):
    return max(rate["fixed_seconds"] + max(cell.works * rate["panel_seconds"], cell.bytes / memory),
               cell.busy * rate["power_seconds"])


def gemv_seconds(rate, cell, _):
    return rate["fixed_seconds"] + cell.bytes / rate["bytes_per_second"]


def slope(pairs):
    """The factor of the amounts of [(amount, wanted, seconds)] with the least squares of errors over seconds."""
    return sum(a * w / s**2 for a, w, s in pairs) / sum((a / s) ** 2 for a, w, s in pairs)


def error(rate, cells, memory):
    return sum((gemm_seconds(rate, cell, memory) / cell.seconds - 1) ** 2 for cell in cells)


def fit_gemm(cells, memory, fixed, ratio):
    """The best rate, and whether its fixed part was fitted. fixed: the only one to try, or None; ratio: likewise of
    power_seconds over panel_seconds."""
    by_idleness = sorted(cells, key=lambda cell: cell.busy / cell.works)
    best, best_error, fitted = None, math.inf, False
    for split in range(0 if ratio else 1, len(cells) + 1):  # those before it take whole waves, the others power
        waves, power = by_idleness[:split], by_idleness[split:]
        several = fixed is None and max(c.works for c in waves) > min(c.works for c in waves)
        for constant in GRID if several else [FIXED if fixed is None else fixed]:
            by_waves = [(c.works, c.seconds - constant, c.seconds) for c in waves]
            by_power = [(c.busy, c.seconds, c.seconds) for c in power]
            if ratio:
                panel = slope(by_waves + [(ratio * busy, wanted, seconds) for busy, wanted, seconds in by_power])
                powered = ratio * panel
            else:
                panel, powered = slope(by_waves), slope(by_power) if power else 0.0
            rate = {"panel_seconds": panel, "power_seconds": powered, "fixed_seconds": constant}
            left = error(rate, cells, memory)
            if left < best_error:
                best, best_error, fitted = rate, left, several
    return best, fitted


def fit(kernels, memory):
    """{kernel: rate} and {kernel: cells that were fitted}."""
    rates, used = {}, {}
    gemms = {}
    for name, cells in sorted(kernels.items()):
        _, kind, _, tokens = shape_of(name)
        if kind == "gemm":
            gemms[name] = used[name] = [cell for cell in cells if 2 * cell.tokens >= tokens]
            continue
        used[name] = [cell for cell in cells if cell.tokens <= tokens]  # one launch
        if used[name]:
            per_byte = slope([(cell.bytes, cell.seconds - FIXED, cell.seconds) for cell in used[name]])
            rates[name] = {"bytes_per_second": 1 / per_byte, "fixed_seconds": FIXED}
    complete = {name: cells for name, cells in gemms.items()
                if min(c.busy / c.works for c in cells) < IDLE and len({c.works for c in cells}) > 1}
    firsts = {name: fit_gemm(cells, memory, None, None) for name, cells in complete.items()}
    constants = [rate["fixed_seconds"] for rate, fitted in firsts.values() if fitted]
    if not constants:
        raise SystemExit("wanted kernels measured in several shapes, got none")
    fixed = statistics.median(constants)
    for name, (rate, fitted) in firsts.items():
        rates[name] = rate if fitted else fit_gemm(complete[name], memory, fixed, None)[0]
    ratios = collections.defaultdict(list)
    for name in complete:
        ratios[shape_of(name)].append(rates[name]["power_seconds"] / rates[name]["panel_seconds"])
    for name, cells in gemms.items():
        if name not in complete and cells:
            known = ratios.get(shape_of(name))
            rates[name] = fit_gemm(cells, memory, fixed, statistics.median(known) if known else None)[0]
    return rates, used, fixed


def report(kernels, rates, used, memory):
    worst = (0.0, "")
    for name, rate in sorted(rates.items()):
        seconds = gemm_seconds if "panel_seconds" in rate else gemv_seconds
        print(name, " ".join(f"{key} {value:.4g}" for key, value in rate.items()))
        for cell in kernels[name]:
            left = seconds(rate, cell, memory) / cell.seconds - 1
            fitted = cell in used[name]
            note = "" if fitted else " (not fitted)"
            print(f"    {cell.where}: {1e6 * cell.seconds:.2f} us, {100 * left:+.1f} %{note}")
            if fitted and abs(left) > abs(worst[0]):
                worst = (left, f"{name}, {cell.where}")
    print(f"worst: {100 * worst[0]:+.1f} % ({worst[1]})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("receipts", nargs="+")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    device, memory, kernels = read(options.receipts)
    rates, used, fixed = fit(kernels, memory)
    report(kernels, rates, used, memory)
    print(f"fixed part of a gemm where it cannot be fitted: {1e6 * fixed:.2f} us; memory {memory / 1e12:.3f} TB/s")
    rows = [{"kernel": name} | {key: float(f"{value:.4g}") for key, value in rate.items()
                                if value or key == "fixed_seconds"} for name, rate in sorted(rates.items())]
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump({"octalane_cuda_rates": 1, "device": device, "memory_bytes_per_second": float(f"{memory:.4g}"),
                   "kernels": rows}, file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()
