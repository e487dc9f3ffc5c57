#!/usr/bin/env python3
"""golden/smollm2.*: next-token distributions of SmolLM2-135M-Instruct.Q4_1 by llama.cpp with fp32 arithmetic: the
file's weights are written out as F32 (exactly what they decode to), so that nothing else is rounded.

smollm2.layout.txt   bytes of text, windows, positions per window, FNV-1a of the tokens as little-endian int32
smollm2.ids.npy      uint16 [positions, 40]: the most likely tokens
smollm2.logs.npy     float16 [positions, 40]: their log-probabilities
smollm2.rest.npy     float32 [positions, 2]: probability of all other tokens, log-probability of the target
Prints how far llama.cpp's own run of the quantized file (int8 activations) is from that.

Needs: gguf, numpy, llama-cpp-python, the model and the text. Recorded with llama-cpp-python 0.3.36.
"""

import os
import tempfile

import numpy as np

import smollm2
from smollm2 import GOLDEN, MODEL, POSITIONS, TEXT_BYTES, WINDOWS

KEPT = 40


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "f32.gguf")
        smollm2.write_f32(MODEL, path)
        exact, quantized = smollm2.load(path, exact=True), smollm2.load(MODEL, exact=False)
        tokens = smollm2.text_tokens(exact)
        ids, logs, rest, own = [], [], [], smollm2.Comparison()
        for window in range(WINDOWS):
            targets = tokens[window * POSITIONS + 1 : (window + 1) * POSITIONS + 1]
            wanted = smollm2.log_softmax(smollm2.window_logits(exact, tokens, window))
            own.add(wanted, smollm2.log_softmax(smollm2.window_logits(quantized, tokens, window)), targets)
            top = np.argsort(-wanted, axis=-1, kind="stable")[:, :KEPT]
            kept = np.take_along_axis(wanted, top, axis=-1).astype(np.float16)
            ids.append(top.astype(np.uint16))
            logs.append(kept)
            others = np.exp(wanted).sum(axis=-1) - np.exp(np.take_along_axis(wanted, top, axis=-1)).sum(axis=-1)
            rest.append(np.stack([others, wanted[np.arange(POSITIONS), targets]], axis=-1).astype(np.float32))
    np.save(os.path.join(GOLDEN, "smollm2.ids.npy"), np.concatenate(ids))
    np.save(os.path.join(GOLDEN, "smollm2.logs.npy"), np.concatenate(logs))
    np.save(os.path.join(GOLDEN, "smollm2.rest.npy"), np.concatenate(rest))
    with open(os.path.join(GOLDEN, "smollm2.layout.txt"), "w") as file:
        file.write(f"{TEXT_BYTES} {WINDOWS} {POSITIONS} {smollm2.tokens_hash(tokens):016x}\n")
    print("kept mass", 1 - np.concatenate(rest)[:, 0].mean())
    print("llama.cpp, its own run of the file:", own.figures())


main()
