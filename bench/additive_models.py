#!/usr/bin/env python3
"""Additive codebooks on a whole model, beside four-bit and two-bit weights: quality, bytes, memory, speed, what it took.

    bench/additive_models.py TOOL MODEL --text FILE ... --calibrate FILE --out docs/results/additive_NAME

TOOL: build/release/octalane. MODEL: a GGUF file. Embedding and output stay f16 in every format, so that only the layers'
matrices differ. The text of --calibrate should not be among those that are judged. Writes NAME.json, step by step, and NAME.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

FORMATS = {
    "f16": ("f16", []),
    "q4_k": ("q4_k", []),
    "mlx-affine-4-g64": ("mlx-affine-4-g64", []),
    "mlx-affine-2-g64": ("mlx-affine-2-g64", []),
    "additive-m2v8-g128": ("additive-m2v8-g128", []),
    "additive-m2v8-g128, calibrated": ("additive-m2v8-g128", ["--calibrate"]),
}
KEEP = ["--keep", "token_embd.weight", "--keep", "output.weight"]


def tool(options, *arguments):
    done = subprocess.run([options.tool, *arguments, "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(arguments)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def kept(options, model):
    """The --keep flags whose tensors this model has."""
    names = {tensor["name"] for tensor in tool(options, "inspect", model)["tensors"]}
    return [part for flag, name in zip(KEEP[::2], KEEP[1::2]) if name in names for part in (flag, name)]


def convert(options, base, work, name):
    target, flags = FORMATS[name]
    path = os.path.join(work, f"{name.replace(', ', '-')}{'.gguf' if target in ('f16', 'q4_k') else ''}")
    start = time.monotonic()
    calibrate = ["--calibrate", options.calibrate] if flags else []
    made = tool(options, "quantize", base, path, "--format", target, *calibrate, *kept(options, base))
    errors = [tensor["rel_error"] for tensor in made["tensors"] if tensor["to"] == target]
    return path, {"seconds": time.monotonic() - start, "bytes": made["bytes_out"],
                  "mean_weight_error": statistics.mean(errors) if errors else 0.0}


def quality(options, path):
    perplexity = {}
    for text in options.text:
        made = tool(options, "ppl", "-m", path, "-f", text, "--tokens", str(options.tokens), "--lane", "bf16")
        perplexity[os.path.basename(text)] = {key: made[key] for key in ("ppl", "stderr")}
    texts = [part for text in options.text for part in ("-f", text)]
    with tempfile.TemporaryDirectory() as work:
        gate = tool(options, "gate", "-m", path, *texts, "-o", os.path.join(work, "receipt.json"), "--lane", "s8.group",
                    "--tokens", str(options.gate_tokens))
    lane = gate["lanes"][0]
    return {"ppl": perplexity, "s8.group": {key: lane.get(key) for key in ("verdict", "ppl_ratio", "kld_mean", "top1")}}


def speeds(options, paths):
    """Tokens/s of prefill and decode, models in turn, and the most memory each held."""
    rows = {name: {"prefill": [], "decode": [], "peak_memory_bytes": 0} for name in paths}
    for _ in range(options.rounds):
        for name, path in paths.items():
            made = tool(options, "bench", "model", "-m", path, "--prompt", "512", "--generate", "64", "--repeats", "1",
                        "--lane", "bf16")
            for row in made["rows"]:
                kind = "decode" if "64" in row["test"] else "prefill"
                rows[name][kind].append(row["tokens_per_second"]["median"])
            rows[name]["peak_memory_bytes"] = max(rows[name]["peak_memory_bytes"], made["peak_memory_bytes"])
    return rows


def table(receipt, texts):
    head = ["layers' format", "MiB", "quantized in", "weight error", *(f"ppl {text}" for text in texts), "s8.group by the gate",
            "prefill, tokens/s", "decode, tokens/s", "peak MiB"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, row in receipt["models"].items():
        speed = row.get("speed", {})
        cells = [name, f"{row['bytes'] / 2**20:.0f}", f"{row['seconds']:.0f} s", f"{row['mean_weight_error']:.3f}",
                 *(f"{row['ppl'][text]['ppl']:.2f} +- {row['ppl'][text]['stderr']:.2f}" for text in texts),
                 f"{row['s8.group']['verdict']}",
                 *(f"{statistics.median(speed[kind]):.0f}" if speed.get(kind) else "" for kind in ("prefill", "decode")),
                 f"{speed['peak_memory_bytes'] / 2**20:.0f}" if "peak_memory_bytes" in speed else ""]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def save(options, receipt):
    with open(options.out + ".json", "w") as file:
        json.dump(receipt, file, indent=1)
        file.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("model")
    parser.add_argument("--text", action="append", required=True)
    parser.add_argument("--calibrate", required=True)
    parser.add_argument("--tokens", type=int, default=2048, help="of each text, for perplexity")
    parser.add_argument("--gate-tokens", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    receipt = {"command": " ".join(sys.argv), "model": os.path.basename(options.model), "tokens": options.tokens,
               "gate_tokens": options.gate_tokens, "calibrated_on": os.path.basename(options.calibrate), "models": {}}
    with tempfile.TemporaryDirectory() as work:
        base = os.path.join(work, "base.gguf")
        tool(options, "quantize", options.model, base, "--format", "f16")
        receipt["machine"] = tool(options, "bench", "model", "-m", base, "--prompt", "8", "--generate", "1", "--repeats", "1")["machine"]
        paths = {}
        for name in FORMATS:
            paths[name], row = convert(options, base, work, name)
            receipt["models"][name] = {**row, **quality(options, paths[name])}
            save(options, receipt)
            print(f"{name}: {json.dumps(receipt['models'][name])}", file=sys.stderr)
        for name, row in speeds(options, paths).items():
            receipt["models"][name]["speed"] = row
    save(options, receipt)
    with open(options.out + ".md", "w") as file:
        file.write(table(receipt, [os.path.basename(text) for text in options.text]))


if __name__ == "__main__":
    main()
