"""Products of octalane beside those of ggml and oneDNN, sample by sample in alternation, in one receipt.

Needs nothing but Python's own library; the programs are built by
    bench/peers/setup.sh DIR && cmake --preset release -D OCTALANE_PEERS=DIR && cmake --build --preset release
and a run writes OUT.json, and OUT.md with its tables and charts:
    python3 bench/peers/gemm.py --rows 4096 --cols 4096 --octalane auto,s8.group --out docs/results/gemm_4096x4096
An arm of --octalane is [BUILD:]LANE[@ISA]; another BUILD may be an ablated one.
"""

import argparse
import os
import statistics
import sys
import time

import report
import turns


def split(text):
    return [word for word in text.split(",") if word]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--octalane", type=split, default=["auto", "s8.group"], help="arms, [BUILD:]LANE[@ISA],...")
    parser.add_argument("--peers", type=split, default=["ggml", "onednn"])
    parser.add_argument("--formats", type=split, default=split("q4_k,q4_0,q8_0,q5_k,q6_k,iq4_xs,mxfp4"))
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--cols", type=int, default=4096)
    parser.add_argument("--tokens", type=split, default=split("1,8,32,128,512"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rates", default="auto", help="what octalane's plans are made from")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--out", required=True, help="path without its ending")
    return parser.parse_args()


def commands(args, form):
    """{name: command} of the programs that share a round. `form` is the weight format."""
    common = ["gemm", "--rows", args.rows, "--cols", args.cols, "--tokens", ",".join(args.tokens), "--threads",
              args.threads, "--repeats", args.repeats, "--seed", args.seed, "--take-turns"]
    common += ["--cold"] * args.cold
    found = {}
    for arm in args.octalane:
        build, lane = arm.split(":") if ":" in arm else (args.build, arm)
        lane, isa = lane.split("@") if "@" in lane else (lane, None)
        found[f"octalane {arm}"] = ([f"{build}/octalane", "bench", *common, "--format", form, "--lane", lane, "--rates",
                                    args.rates, "--json"]
                                    + (["--isa", isa] if isa else []))
    for peer in args.peers:
        formats = ["--format", form] if peer == "ggml" else []
        found[peer] = [f"{args.build}/bench/peers/{peer}_gemm", *common, *formats]
    return {name: [str(word) for word in command] for name, command in found.items()}


def labelled(program, cell):
    """A cell with the system it belongs to and a name for it that is unique in its case."""
    label = f"{program.name} {cell['kernel']}"
    if program.name.startswith("octalane"):
        build = program.name.split(" ")[1].rpartition(":")[0]
        label = " ".join(filter(None, ["octalane", cell["staged"], cell["isa_asked"], os.path.basename(build)]))
        cell["refused"] = of_the_lane(cell)
    return {"label": label, "program": program.name, **cell}


def of_the_lane(cell):
    """Refusals of kernels of the lane that ran; all others were refused because another lane was asked for."""
    return [refusal for refusal in cell["refused"] if refusal["kernel"].startswith(cell["staged"] + "_")]


def spread(samples):
    return {"min": min(samples), "median": statistics.median(samples), "max": max(samples)}


def fastest(cells):
    return min(cells, key=lambda cell: cell["ms"]["median"], default=None)


def ratios(cells):
    """How many times as fast each arm of octalane is as the fastest arm of ggml, as the fastest dense product of oneDNN
    on operands as wide as the arm's lane and, for an ablated arm, as the whole kernel; within each repeat."""
    found = []
    arms = [cell for cell in cells if cell["program"].startswith("octalane")]
    for ours in arms:
        wide = not ours["staged"].startswith("s8")
        ggml = fastest(c for c in cells if c["program"] == "ggml")
        dense = fastest(c for c in cells if c["program"] == "onednn" and (c["format"] == "bf16") == wide)
        whole = fastest(c for c in arms if "+" in ours["kernel"] and c["kernel"] == ours["kernel"].split("+")[0])
        for other in filter(None, (ggml, dense, whole)):
            pairs = [b / a for a, b in zip(ours["samples_ms"], other["samples_ms"])]
            found.append({"of": ours["label"], "over": other["label"], "speedup": spread(pairs)})
    return found


def run_format(args, form, receipt):
    print(f"{form}: {args.rows} x {args.cols}", file=sys.stderr)
    programs = turns.alternate(commands(args, form))
    cells = []
    for program in programs:
        if program.document is None:
            print(f"{form}: {program.name}: {program.error.strip()}", file=sys.stderr)
            receipt["failed"].append({"format": form, "program": program.name, "error": program.error.strip()})
            continue
        document = program.document
        facts = {key: document[key] for key in ("machine", "version", "timed", "cache", "sampling") if key in document}
        entry = receipt["programs"].setdefault(program.name, {"commands": [], **facts, "refused": []})
        entry["commands"].append(document["command"])
        entry["refused"] += document.get("refused", [])
        cells += [labelled(program, cell) for cell in document["cells"]]
    for tokens in args.tokens:
        these = [cell for cell in cells if cell["tokens"] == int(tokens)]
        labels = [cell["label"] for cell in these]
        if len(set(labels)) != len(labels):
            sys.exit(f"gemm.py: two arms are both {max(labels, key=labels.count)}")
        receipt["cases"].append({"format": form, "rows": args.rows, "cols": args.cols, "tokens": int(tokens),
                                 "cells": these, "ratios": ratios(these)})


def main():
    args = parse()
    cores = sorted(os.sched_getaffinity(0))[:args.threads]
    os.sched_setaffinity(0, cores)  # every program inherits it: all run on the same cores
    receipt = {"command": " ".join(["python3", *sys.argv]), "date": time.strftime("%Y-%m-%d"), "cores": cores,
               "load_average_1min": {"before": os.getloadavg()[0]}, "seed": args.seed,
               "cache": "cold: copies of the weights in rotation" if args.cold else "warm",
               "order": "one sample of each program in turn, and so on", "programs": {}, "failed": [], "cases": []}
    for form in args.formats:
        run_format(args, form, receipt)
    receipt["load_average_1min"]["after"] = os.getloadavg()[0]
    report.write(receipt, args.out)
    print(f"{args.out}.json", file=sys.stderr)


if __name__ == "__main__":
    main()
