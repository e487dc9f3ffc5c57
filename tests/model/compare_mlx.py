#!/usr/bin/env python3
"""SmolLM2 in MLX's formats, run by octalane and by mlx-lm on the CPU: tokens and next-token distributions.

    compare_mlx.py BUILD [-o docs/results/mlx_accuracy.json]     BUILD: build/release, with octalane, dump_logits, dump_tokens

Every folder is written by `octalane quantize` and read by both. Distances are over the whole vocabulary: from mlx-lm as it
is on the first OWN positions (its quantized products take a third of a second a token on a CPU core), and from mlx-lm with
its layers dequantized to fp32 by mlx on 4 windows of 500 tokens. Needs: mlx[cpu], mlx-lm, numpy, the model of
scripts/fetch_model.sh, a text.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import tempfile

import mlx.core as mx
import mlx.nn as nn
import mlx_lm
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "octalane",
                     "SmolLM2-135M-Instruct.Q4_1.gguf")
TEXT = os.path.join(HERE, "..", "..", "..", "shared", "corpus", "wikitext2-test.txt")
FORMATS = ("mlx-affine-4-g64", "mlx-affine-8-g64", "mlx-mxfp4", "mlx-mxfp8", "mlx-nvfp4")
WINDOWS, POSITIONS, OWN, TEXT_BYTES = 4, 500, 128, 200_000


def git(*arguments):
    return subprocess.run(["git", "-C", HERE, *arguments], capture_output=True, text=True).stdout.strip()


def processor():
    with open("/proc/cpuinfo") as file:
        return next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.machine())


def log_softmax(logits):
    logits = logits.astype(np.float64)
    logits -= logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def dequantize(model):
    """Puts what mlx decodes the weights to, in fp32, in place of quantized layers."""
    for path, module in list(model.named_modules()):
        if not isinstance(module, (nn.QuantizedLinear, nn.QuantizedEmbedding)):
            continue
        fp32 = {name: module[name].astype(mx.float32) for name in ("scales", "biases")
                if name in module and module[name].dtype != mx.uint8}
        weight = mx.dequantize(module.weight, fp32.get("scales", module.scales), fp32.get("biases"),
                               group_size=module.group_size, bits=module.bits, mode=module.mode, dtype=mx.float32)
        plain = nn.Linear(1, 1, bias=False) if isinstance(module, nn.QuantizedLinear) else nn.Embedding(1, 1)
        plain.weight = weight
        parent = model
        *parents, last = path.split(".")
        for part in parents:
            parent = parent[int(part)] if part.isdigit() else getattr(parent, part)
        setattr(parent, last, plain)


def distances(model, ours, tokens, windows, positions):
    kld, same, loss = [], [], [[], []]
    for window in range(windows):
        start = window * POSITIONS
        logits = model(mx.array([tokens[start : start + positions]]))[0]
        wanted = log_softmax(np.array(logits.astype(mx.float32)))
        got = log_softmax(ours[start : start + positions])
        kld.append((np.exp(wanted) * (wanted - got)).sum(axis=-1))
        same.append(wanted.argmax(axis=-1) == got.argmax(axis=-1))
        targets = tokens[start + 1 : start + positions + 1]
        for each, logs in zip(loss, (wanted, got)):
            each.append(-logs[np.arange(len(targets)), targets])
    kld = np.concatenate(kld)
    perplexity = [float(np.exp(np.concatenate(each).mean())) for each in loss]
    return {"positions": len(kld), "mlx_dtype": str(logits.dtype), "kld_mean": float(kld.mean()),
            "kld_p99": float(np.quantile(kld, 0.99)), "kld_max": float(kld.max()),
            "top1": float(np.concatenate(same).mean()), "ppl_mlx": perplexity[0], "ppl_octalane": perplexity[1]}


def compare(build, folder, text):
    model, tokenizer = mlx_lm.load(folder)
    with open(text, newline="") as file:
        tokens = tokenizer.encode(file.read())
    said = subprocess.run([os.path.join(build, "tests/model/dump_tokens"), folder, text], check=True,
                          capture_output=True, text=True).stdout
    same_tokens = [int(line) for line in said.split()] == tokens

    work = os.path.dirname(folder)
    tokens_path, logits_path = os.path.join(work, "tokens.npy"), os.path.join(work, "logits.npy")
    np.save(tokens_path, np.array(tokens[: WINDOWS * POSITIONS], np.float32).reshape(WINDOWS, POSITIONS))
    kernels = subprocess.run([os.path.join(build, "tests/model/dump_logits"), folder, tokens_path, logits_path, "bf16"],
                             check=True, capture_output=True, text=True).stdout
    ours = np.load(logits_path, mmap_mode="r")
    own = distances(model, ours, tokens, 1, OWN)
    dequantize(model)
    return {"same_tokens": same_tokens, "tokens": len(tokens), "mlx_own_products": own,
            "mlx_dequantized": distances(model, ours, tokens, WINDOWS, POSITIONS),
            "kernels": [line.split(":")[0] for line in kernels.splitlines()]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("-o", "--out")
    parser.add_argument("--text", default=TEXT)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as work:
        text = os.path.join(work, "text.txt")
        with open(options.text, "rb") as whole, open(text, "wb") as part:
            part.write(whole.read(TEXT_BYTES).rsplit(b"\n", 1)[0])
        for name in FORMATS:
            folder = os.path.join(work, name)
            subprocess.run([os.path.join(options.build, "octalane"), "quantize", MODEL, folder, "--format", name],
                           check=True, capture_output=True)
            rows.append({"format": name, **compare(options.build, folder, text)})
            print(json.dumps(rows[-1]), flush=True)
    if options.out:
        receipt = {"what": "octalane's stock path beside mlx-lm's on the same folders", "model": os.path.basename(MODEL),
                   "text": {"name": os.path.basename(options.text), "bytes": TEXT_BYTES, "windows": WINDOWS,
                            "positions": POSITIONS},
                   "command": "tests/model/compare_mlx.py build/release -o docs/results/mlx_accuracy.json",
                   "machine": processor(), "mlx": mx.__version__,
                   "mlx_lm": importlib.metadata.version("mlx-lm"), "commit": git("rev-parse", "HEAD"),
                   "clean": not git("status", "--porcelain"), "rows": rows}
        with open(options.out, "w") as file:
            file.write(json.dumps(receipt, indent=1) + "\n")


main()
