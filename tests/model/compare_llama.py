#!/usr/bin/env python3
"""Octalane's next-token distributions beside llama.cpp's, over the whole vocabulary, on the windows of smollm2.py.

    compare_llama.py DUMP_LOGITS [-o docs/results/model_accuracy.json]     DUMP_LOGITS: built from dump_logits.cpp

Two references: llama.cpp in fp32 on the file's weights written out as F32, and llama.cpp's own run of the file, whose
activations are int8. They are compared with each other too: that is the noise of int8 activations.

Needs: gguf, numpy, llama-cpp-python, the model and the text.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import tempfile

import numpy as np

import smollm2
from smollm2 import MODEL, POSITIONS, TEXT_BYTES, WINDOWS

LANES = ("bf16", "s8.group")


def processor():
    with open("/proc/cpuinfo") as file:
        return next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.machine())


def commit():
    def git(*arguments):
        return subprocess.run(["git", "-C", smollm2.HERE, *arguments], capture_output=True, text=True).stdout.strip()

    return {"commit": git("rev-parse", "HEAD"), "clean": not git("status", "--porcelain")}


def windows(logits):
    """Log-probabilities, window by window; `logits` gives those of one window."""
    for window in range(WINDOWS):
        yield smollm2.log_softmax(logits(window))


def compare(wanted, got, tokens):
    comparison = smollm2.Comparison()
    for window, (wanted_logs, got_logs) in enumerate(zip(windows(wanted), windows(got))):
        targets = tokens[window * POSITIONS + 1 : (window + 1) * POSITIONS + 1]
        comparison.add(wanted_logs, got_logs, targets)
    return comparison.figures()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dump_logits")
    parser.add_argument("-o", "--out")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        f32, tokens_path = os.path.join(folder, "f32.gguf"), os.path.join(folder, "tokens.npy")
        smollm2.write_f32(MODEL, f32)
        exact, own = smollm2.load(f32, exact=True), smollm2.load(MODEL, exact=False)
        tokens = smollm2.text_tokens(exact)
        np.save(tokens_path, np.array(tokens[:-1], np.float32).reshape(WINDOWS, POSITIONS))
        references = {"llama.cpp, fp32": lambda window: smollm2.window_logits(exact, tokens, window),
                      "llama.cpp, its own run": lambda window: smollm2.window_logits(own, tokens, window)}

        def add(name, got, reference, **more):
            rows.append({"run": name, "reference": reference, **more,
                         **compare(references[reference], got, tokens)})
            print(json.dumps(rows[-1]), flush=True)

        add("llama.cpp, its own run", references["llama.cpp, its own run"], "llama.cpp, fp32")
        for lane in LANES:
            out = os.path.join(folder, "logits.npy")
            said = subprocess.run([options.dump_logits, MODEL, tokens_path, out, lane], check=True,
                                  capture_output=True, text=True).stdout
            dumped = np.load(out, mmap_mode="r")
            for reference in references:
                add(f"octalane, {lane}", lambda window: dumped[window * POSITIONS : (window + 1) * POSITIONS], reference,
                    kernels=[line.split(":")[0] for line in said.splitlines()])
    if options.out:
        receipt = {"what": "next-token distributions over the whole vocabulary", "model": os.path.basename(MODEL),
                   "text": {"name": os.path.basename(smollm2.TEXT), "bytes": TEXT_BYTES, "windows": WINDOWS,
                            "positions": POSITIONS, "tokens_fnv1a": f"{smollm2.tokens_hash(tokens):016x}"},
                   "command": "tests/model/compare_llama.py build/release/tests/model/dump_logits",
                   "machine": processor(), "llama_cpp_python": importlib.metadata.version("llama-cpp-python"),
                   "numpy": np.__version__, **commit(), "rows": rows}
        with open(options.out, "w") as file:
            file.write(json.dumps(receipt, indent=1) + "\n")


main()
