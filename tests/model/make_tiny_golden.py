#!/usr/bin/env python3
"""Records the logits of the tiny models: golden/<variant>.exact.npy (llama.cpp at fp32 where it can run them, else
fp64 numpy) and golden/<variant>.staged.npy (numpy with inputs rounded to bfloat16, keys and values to halves).

Needs: gguf, numpy, llama-cpp-python. Usage: make_tiny_golden.py [--check]   (--check: compare, write nothing)
"""

import os
import sys
import tempfile

import numpy as np
from llama_cpp import GGML_TYPE_F32, Llama

import reference
from tiny_models import CONTEXT, TOKENS, VARIANTS, tokens

POSITIONS = [0] + list(range(4, TOKENS, 5))
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")


def llama_cpp_logits(variant):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tiny.gguf")
        variant.write(path, "f32")
        model = Llama(path, n_ctx=CONTEXT, logits_all=True, flash_attn=False, type_k=GGML_TYPE_F32,
                      type_v=GGML_TYPE_F32, n_threads=1, n_threads_batch=1, verbose=False)
        model.eval(tokens())
        return model.scores[:TOKENS].astype(np.float64)


def relative(got, wanted):
    return np.linalg.norm(got - wanted) / np.linalg.norm(wanted)


def record(name, values, check):
    path, values = os.path.join(FOLDER, name), values[POSITIONS].astype(np.float32)
    if not check:
        np.save(path, values)
    elif (error := relative(np.load(path), values)) > 1e-5:
        sys.exit(f"{name}: the recording is {error:.2g} away from what this run gives")


def main():
    check = "--check" in sys.argv
    os.makedirs(FOLDER, exist_ok=True)
    for name, variant in VARIANTS.items():
        exact = reference.logits(variant, tokens())
        staged = reference.logits(variant, tokens(), reference.to_bf16, reference.to_f16)
        line = f"{name:24} staged-exact {relative(staged, exact):.2e}"
        if variant.llama_cpp:
            llama = llama_cpp_logits(variant)
            line += f"  numpy-llama.cpp {relative(exact, llama):.2e}"
            if relative(exact, llama) > 1e-5:
                sys.exit(f"{line}\n{name}: numpy and llama.cpp disagree")
            exact = llama
        print(line)
        record(f"{name}.exact.npy", exact, check)
        record(f"{name}.staged.npy", staged, check)
    if not check:
        VARIANTS["llama_tied"].write(os.path.join(FOLDER, "llama_tied.gguf"), "q8_0")


main()
