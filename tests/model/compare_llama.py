#!/usr/bin/env python3
"""Octalane's next-token distributions beside llama.cpp's, over the whole vocabulary, on the windows of smollm2.py.

    compare_llama.py DUMP_LOGITS [LANE]      DUMP_LOGITS: the tool built from dump_logits.cpp

Two references: llama.cpp in fp32 on the file's weights written out as F32, and llama.cpp's own run of the file, whose
activations are int8. The last line says how far those two are from each other.

Needs: gguf, numpy, llama-cpp-python, the model and the text.
"""

import os
import subprocess
import sys
import tempfile

import numpy as np

import smollm2
from smollm2 import MODEL, POSITIONS, WINDOWS


def main():
    tool, lane = sys.argv[1], sys.argv[2:3]
    with tempfile.TemporaryDirectory() as folder:
        f32, tokens_path, out = (os.path.join(folder, name) for name in ("f32.gguf", "tokens.npy", "logits.npy"))
        smollm2.write_f32(MODEL, f32)
        exact, own = smollm2.load(f32, exact=True), smollm2.load(MODEL, exact=False)
        tokens = smollm2.text_tokens(exact)
        np.save(tokens_path, np.array(tokens[:-1], np.float32).reshape(WINDOWS, POSITIONS))
        subprocess.run([tool, MODEL, tokens_path, out] + lane, check=True)
        dumped = np.load(out, mmap_mode="r")
        from_exact, from_own, between = (smollm2.Comparison() for _ in range(3))
        for window in range(WINDOWS):
            targets = tokens[window * POSITIONS + 1 : (window + 1) * POSITIONS + 1]
            got = smollm2.log_softmax(dumped[window * POSITIONS : (window + 1) * POSITIONS])
            exact_logs = smollm2.log_softmax(smollm2.window_logits(exact, tokens, window))
            own_logs = smollm2.log_softmax(smollm2.window_logits(own, tokens, window))
            from_exact.add(exact_logs, got, targets)
            from_own.add(own_logs, got, targets)
            between.add(exact_logs, own_logs, targets)
    print("octalane, against llama.cpp in fp32:        ", from_exact.line())
    print("octalane, against llama.cpp's own run:      ", from_own.line())
    print("llama.cpp's own run, against itself in fp32:", between.line())


main()
