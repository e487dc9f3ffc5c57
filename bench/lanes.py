#!/usr/bin/env python3
"""Every lossy lane on a model in several formats: quality on texts by `octalane gate`, and the speed of prefill.

    bench/lanes.py TOOL MODEL --text FILE ... --out docs/results/lanes_NAME     TOOL: build/release/octalane

MODEL is a GGUF file; --formats are model folders that are made of it. Writes NAME.json (the gate's receipts, raw samples of the
speeds) and NAME.md (one table). Lanes whose kernels are scalar (--slow) are judged on --slow-tokens of each text and not timed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

SLOW = ("f8.group", "f8.row")
FAST = ("s8.group", "s8.block", "s8.xblock", "s8.row")


def tool(options, *arguments):
    done = subprocess.run([options.tool, *arguments, "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(arguments)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def judge(options, model, work, lanes, tokens, context, *more):
    texts = [part for text in options.text for part in ("-f", text)]
    return tool(options, "gate", "-m", model, *texts, "-o", os.path.join(work, "receipt.json"), "--lane", ",".join(lanes),
                "--tokens", str(tokens), "--context", str(context), *more)


def speeds(options, model, work, lanes):
    """Tokens/s of prefilling 512 tokens, lanes in turn; tensors that a lane cannot serve run stock, as in the gate."""
    samples = {name: [] for name in lanes}
    plan = os.path.join(work, "lanes.json")
    for _ in range(options.rounds):
        for lane, stock in lanes.items():
            rules = [{"tensors": "*", "lane": lane}, *({"tensors": name, "lane": "bf16"} for name in stock)]
            with open(plan, "w") as file:
                json.dump({"lanes": rules}, file)
            made = tool(options, "bench", "model", "-m", model, "--lanes", plan, "--prompt", "512", "--generate", "1",
                        "--repeats", "1", "--receipt", "none")
            row = next(row for row in made["rows"] if "512" in row["test"])
            samples[lane].append(row["tokens_per_second"]["median"])
    return samples


def measure(options, name, model, work, mixed):
    fast = judge(options, model, work, FAST, options.tokens, 512)
    slow = judge(options, model, work, SLOW, options.slow_tokens, min(options.slow_tokens, 256))
    row = {"model": name, "gate": fast, "gate_slow": slow}
    served = {lane["staged"]: [kept["tensor"] if isinstance(kept, dict) else kept for kept in lane["stock"]]
              for lane in fast["lanes"] if lane["verdict"] != "not served"}
    failed = [lane["staged"] for lane in fast["lanes"] if lane["verdict"] == "fail"]
    if failed and mixed and options.mixed_tokens > 0:  # the fastest lane that did not pass: what keeping some tensors stock recovers
        row["mixed"] = judge(options, model, work, [failed[-1]], options.mixed_tokens, 512, "--mixed", failed[-1],
                             "--by", "block")["mixed"]
    row["prefill_tokens_per_second"] = speeds(options, model, work, {"bf16": [], **served})
    return row


def figure(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"


def table(report):
    lines = ["| model | lane | " + " | ".join(f"{text}: ratio, KLD, top-1" for text in report["texts"]) +
             " | verdict | prefill, of bf16 |", "|---|---|" + "---|" * (len(report["texts"]) + 2)]
    for row in report["rows"]:
        speed = {lane: statistics.median(all_) for lane, all_ in row["prefill_tokens_per_second"].items()}
        lanes = [(lane, "") for lane in row["gate"]["lanes"]] + [(lane, " (short)") for lane in row["gate_slow"]["lanes"]]
        if row.get("mixed"):
            lanes.append((row["mixed"], ""))
        for lane, note in lanes:
            if lane["verdict"] == "not served":
                continue
            mixed = lane is row.get("mixed")
            name = lane.get("staged") or lane.get("lane")
            cells = [f"{figure(t['ppl_ratio'], 4)}, {figure(t['kld_mean'], 4)}, {figure(t['top1'], 3)}"
                     for t in lane["texts"]]
            if mixed:
                name = f"{name}, {len(lane['stock'])} tensors stock"
            relative = figure(speed[name] / speed["bf16"], 2) if name in speed else "-"
            lines.append(f"| {row['model']} | `{name}`{note} | " + " | ".join(cells) + f" | {lane['verdict']} | {relative} |")
    return "\n".join(lines) + "\n"


def write(options, machine, rows):
    report = {"what": "lossy lanes on a model", "texts": [os.path.basename(text) for text in options.text],
              "machine": machine, "command": " ".join(["bench/lanes.py", *sys.argv[1:]]), "rows": rows}
    with open(options.out + ".json", "w") as file:
        file.write(json.dumps(report, indent=1) + "\n")
    with open(options.out + ".md", "w") as file:
        file.write(table(report))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("model")
    parser.add_argument("--text", action="append", required=True)
    parser.add_argument("--formats", default="mlx-affine-4-g64,mlx-mxfp4,mlx-mxfp8")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--slow-tokens", type=int, default=512)
    parser.add_argument("--mixed-tokens", type=int, default=1024, help="of MODEL itself: each of its blocks is judged alone on these; 0: not")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    rows = []
    machine = tool(options, "bench", "gemm", "--format", "q4_0", "--rows", "16", "--cols", "32", "--tokens", "1")["machine"]
    with tempfile.TemporaryDirectory() as work:
        for name in [os.path.basename(options.model), *filter(None, options.formats.split(","))]:
            model = options.model
            if name != os.path.basename(model):
                model = os.path.join(work, name)
                tool(options, "quantize", options.model, model, "--format", name)
            rows.append(measure(options, name, model, work, mixed=model == options.model))
            write(options, machine, rows)
            print(name, "done", flush=True)


main()
