#!/usr/bin/env python3
"""golden/: llama_tied.gguf, and the logits of the tiny models from the fp64 transformer of reference.py.

<variant>.staged.npy: products' inputs rounded to bfloat16, keys and values to halves. <variant>.fp64.npy: nothing
rounded, for the variants that llama.cpp cannot run. A recording that this run agrees with is left as it is: the last
bits of fp64 sums are not the same on every machine. Fails when llama.cpp's recordings (record_tiny_llama_cpp.py) are
not what fp64 gives.

Needs: gguf, numpy.
"""

import os
import sys

import numpy as np

import reference
from tiny_models import POSITIONS, VARIANTS, tokens

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")


def relative(got, wanted):
    return np.linalg.norm(got - wanted) / np.linalg.norm(wanted)


def keep(name, values):
    path = os.path.join(FOLDER, name)
    if not os.path.exists(path) or relative(np.load(path), values) > 1e-6:
        np.save(path, values.astype(np.float32))


def main():
    os.makedirs(FOLDER, exist_ok=True)
    VARIANTS["llama_tied"].write(os.path.join(FOLDER, "llama_tied.gguf"), "q8_0")
    for name, variant in VARIANTS.items():
        exact = reference.logits(variant, tokens())[POSITIONS]
        staged = reference.logits(variant, tokens(), reference.to_bf16, reference.to_f16)[POSITIONS]
        keep(f"{name}.staged.npy", staged)
        line = f"{name:24} staged from exact {relative(staged, exact):.2e}"
        if variant.llama_cpp:
            recorded = np.load(os.path.join(FOLDER, f"{name}.llama_cpp.npy"))
            line += f"  exact from llama.cpp {relative(exact, recorded):.2e}"
            if relative(exact, recorded) > 1e-5:
                sys.exit(f"{line}: they must agree to 1e-5")
        else:
            keep(f"{name}.fp64.npy", exact)
        print(line)


main()
