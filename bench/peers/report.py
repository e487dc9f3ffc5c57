"""Writes a receipt of gemm.py as JSON, and its tables and charts as Markdown and SVG beside it.

    python3 bench/peers/report.py docs/results/gemm_4096x4096.json     writes the Markdown and the charts anew
"""

import json
import os
import re
import sys
import textwrap

import chart


def rounded(value):
    """Floats to six significant digits: what a clock tells."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list) else value


def compact(receipt):
    """JSON of one line for each cell."""
    cells = []

    def held(cell):
        cells.append(json.dumps(cell))
        return f"@{len(cells) - 1}@"

    cases = [{**case, "cells": [held(cell) for cell in case["cells"]],
              "ratios": [held(ratio) for ratio in case["ratios"]]} for case in receipt["cases"]]
    text = json.dumps({**receipt, "cases": cases}, indent=1)
    return re.sub(r'"@(\d+)@"', lambda found: cells[int(found[1])], text) + "\n"


def labels_of(cases):
    return list(dict.fromkeys(cell["label"] for case in cases for cell in case["cells"]))


def table(headers, rows):
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * 2 + "---:|" * (len(headers) - 2)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def speeds(cases):
    """TOP/s of every arm, median of its samples."""
    labels = labels_of(cases)
    rows = []
    for case in cases:
        cells = {cell["label"]: cell for cell in case["cells"]}
        rows.append([case["format"], str(case["tokens"])] +
                    [f"{cells[label]['tops']:.3f}" if label in cells else "-" for label in labels])
    return table(["format", "tokens", *labels], rows)


def comparisons(cases):
    """Ratios within each repeat: median (least-most), and which arms of the others were fastest."""
    pairs = {}
    for case in cases:
        for ratio in case["ratios"]:
            over = ratio["over"] if ratio["over"].startswith("octalane") else ratio["over"].split(" ")[0]
            pairs.setdefault((ratio["of"], over), {})[case["format"], case["tokens"]] = ratio
    rows = []
    for case in cases:
        row = [case["format"], str(case["tokens"])]
        for found in pairs.values():
            ratio = found.get((case["format"], case["tokens"]))
            row.append("-" if ratio is None else "{median:.2f} ({min:.2f}-{max:.2f})".format(**ratio["speedup"]))
        others = (ratio["over"] for ratio in case["ratios"] if not ratio["over"].startswith("octalane"))
        fastest = dict.fromkeys(other.split(" ", 1)[1] for other in others)
        rows.append([*row, ", ".join(fastest)])
    headers = ["format", "tokens", *(f"{of} over {over}" for of, over in pairs), "fastest of the others"]
    if not any(row[-1] for row in rows):  # no other system took part
        headers, rows = headers[:-1], [row[:-1] for row in rows]
    return table(headers, rows)


def errors(cases):
    """Total errors, at the largest number of tokens of each format."""
    labels = labels_of(cases)
    last = {case["format"]: case for case in sorted(cases, key=lambda case: case["tokens"])}
    rows = []
    for form, case in last.items():
        cells = {cell["label"]: cell for cell in case["cells"]}
        found = (cells.get(label, {}).get("total_error") for label in labels)
        rows.append([form, str(case["tokens"]), *("-" if error is None else f"{error:.1e}" for error in found)])
    return table(["format", "tokens", *labels], rows)


def panels(cases, value):
    """{format: [Series]} of value(cell) -> (low, middle, high), or None to leave a cell out."""
    found = {}
    for case in cases:
        panel = found.setdefault(case["format"], {})
        for cell in case["cells"]:
            if (point := value(cell)) is not None:
                panel.setdefault(cell["label"], {})[case["tokens"]] = point
    return {form: [chart.Series(name, points) for name, points in panel.items()] for form, panel in found.items()}


def tops(cell):
    ops = 2e-9 * cell["rows"] * cell["cols"] * cell["tokens"]
    return tuple(ops / cell["ms"][key] for key in ("max", "median", "min"))


def share(cell):
    if "peak" not in cell:
        return None
    return tuple(cell["peak"]["share"][key] for key in ("min", "median", "max"))


def summary(receipt):
    ours = next(p for p in receipt["programs"].values() if "machine" in p)
    machine, sampling = ours["machine"], ours["sampling"]
    peers = {name: program["version"] for name, program in receipt["programs"].items() if "version" in program}
    lines = [f"{machine['cpu']}, {len(receipt['cores'])} of its cores, {machine['compiler']}; octalane "
             f"{str(machine['commit'])[:12]}{' with uncommitted changes' if machine['uncommitted_changes'] else ''}.",
             f"Weights {receipt['cache']}. Medians of {sampling['repeats']} samples, {receipt['order']}; "
             "{date}; load average {before:.1f} before and {after:.1f} after.".format(
                 date=receipt["date"], **receipt["load_average_1min"])]
    cells = [cell for case in receipt["cases"] for cell in case["cells"]]
    disturbed = sum(switches > 0 for cell in cells for switches in cell["involuntary_switches"])
    lines.append(f"Other programs took a core during {disturbed} of the {sum(len(c['samples_ms']) for c in cells)} samples.")
    for name, version in peers.items():
        lines.append(f"{name}: " + ", ".join(f"{key} {value}" for key, value in version.items() if key != "features") + ".")
    for failure in receipt["failed"]:
        why = textwrap.shorten(failure["error"], 120, placeholder=" ...")
        lines.append(f"Not run: {failure['format']}, {failure['program']}: {why}")
    return "\n".join(lines)


def write_reports(receipt, path):
    cases = receipt["cases"]
    name = os.path.basename(path)
    title = "{rows} x {cols}, {threads} thread(s), weights {cache}".format(
        rows=cases[0]["rows"], cols=cases[0]["cols"], threads=len(receipt["cores"]), cache=receipt["cache"].split(":")[0])
    charts = {"speed": chart.svg(title, "TOP/s; median, bars from least to most", panels(cases, tops))}
    shares = panels(cases, share)
    if any(shares.values()):
        charts["share"] = chart.svg(title, "share of the measured peak", shares, logarithmic=False, percent=True)
    text = [f"# {title}", f"Written by `bench/peers/report.py` from `{name}.json`.", summary(receipt)]
    for kind, drawing in charts.items():
        with open(f"{path}_{kind}.svg", "w") as file:
            file.write(drawing)
        text.append(f"![{kind}]({name}_{kind}.svg)")
    text += ["## TOP/s", speeds(cases)]
    if any(case["ratios"] for case in cases):
        text += ["## Ratios within each repeat: median (least-most)", comparisons(cases)]
    if any(cell["total_error"] is not None for case in cases for cell in case["cells"]):
        text += ["## Total error: against fp64 on fp32 activations and each arm's own weights, relative L2", errors(cases)]
    with open(f"{path}.md", "w") as file:
        file.write("\n\n".join(text) + "\n")


def write(receipt, path):
    receipt = rounded(receipt)
    with open(f"{path}.json", "w") as file:
        file.write(compact(receipt))
    write_reports(receipt, path)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        with open(argument) as source:
            write_reports(json.load(source), argument.removesuffix(".json"))
