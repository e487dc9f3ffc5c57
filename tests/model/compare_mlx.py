#!/usr/bin/env python3
"""SmolLM2 in MLX's formats, run by octalane and by mlx-lm on the CPU: tokens and next-token distributions.

    compare_mlx.py BUILD [-o docs/results/mlx_accuracy.json]     BUILD: build/release, with octalane, dump_logits, dump_tokens

Every folder is written by `octalane quantize` and read by both, each on its stock path; distances are over the whole
vocabulary. One window: mlx's quantized products take a third of a second a token on a CPU core. Needs: mlx[cpu], mlx-lm,
numpy, the model of scripts/fetch_model.sh, a text.
"""

import argparse
import importlib.metadata
import json
import os
import subprocess
import tempfile

import mlx.core as mx
import mlx_lm
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "octalane",
                     "SmolLM2-135M-Instruct.Q4_1.gguf")
TEXT = os.path.join(HERE, "..", "..", "..", "shared", "corpus", "wikitext2-test.txt")
FORMATS = ("mlx-affine-4-g64", "mlx-affine-8-g64", "mlx-mxfp4", "mlx-mxfp8", "mlx-nvfp4")
POSITIONS, TEXT_BYTES = 200, 200_000


def machine(build):
    """What the tool says of the machine and of the commit that it was built of."""
    said = subprocess.run([os.path.join(build, "octalane"), "bench", "gemm", "--format", "q4_0", "--rows", "16", "--cols",
                           "32", "--tokens", "1", "--json"], check=True, capture_output=True, text=True).stdout
    return json.loads(said)["machine"]


def log_softmax(logits):
    logits = logits.astype(np.float64)
    logits -= logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def distances(model, ours, tokens):
    logits = model(mx.array([tokens[:POSITIONS]]))[0]
    wanted, got = log_softmax(np.array(logits.astype(mx.float32))), log_softmax(ours)
    kld = (np.exp(wanted) * (wanted - got)).sum(axis=-1)
    rows, targets = np.arange(POSITIONS), tokens[1 : POSITIONS + 1]
    return {"positions": POSITIONS, "mlx_dtype": str(logits.dtype), "kld_mean": float(kld.mean()),
            "kld_p99": float(np.quantile(kld, 0.99)), "kld_max": float(kld.max()),
            "top1": float((wanted.argmax(axis=-1) == got.argmax(axis=-1)).mean()),
            "ppl_mlx": float(np.exp(-wanted[rows, targets].mean())),
            "ppl_octalane": float(np.exp(-got[rows, targets].mean()))}


def compare(build, folder, text):
    model, tokenizer = mlx_lm.load(folder)
    with open(text, newline="") as file:
        tokens = tokenizer.encode(file.read())
    said = subprocess.run([os.path.join(build, "tests/model/dump_tokens"), folder, text], check=True,
                          capture_output=True, text=True).stdout
    same_tokens = [int(line) for line in said.split()] == tokens

    work = os.path.dirname(folder)
    tokens_path, logits_path = os.path.join(work, "tokens.npy"), os.path.join(work, "logits.npy")
    np.save(tokens_path, np.array([tokens[:POSITIONS]], np.float32))
    kernels = subprocess.run([os.path.join(build, "tests/model/dump_logits"), folder, tokens_path, logits_path, "bf16"],
                             check=True, capture_output=True, text=True).stdout
    return {"same_tokens": same_tokens, "tokens": len(tokens), **distances(model, np.load(logits_path), tokens),
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
                   "text": {"name": os.path.basename(options.text), "bytes": TEXT_BYTES},
                   "command": "tests/model/compare_mlx.py build/release -o docs/results/mlx_accuracy.json",
                   "machine": machine(options.build), "mlx": mx.__version__,
                   "mlx_lm": importlib.metadata.version("mlx-lm"), "rows": rows}
        with open(options.out, "w") as file:
            file.write(json.dumps(receipt, indent=1) + "\n")


main()
