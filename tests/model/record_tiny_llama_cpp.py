#!/usr/bin/env python3
"""golden/<variant>.llama_cpp.npy: logits of the tiny models by llama.cpp, with fp32 weights, activations and cache.

Needs: gguf, numpy, llama-cpp-python. Recorded with llama-cpp-python 0.3.36.
"""

import os
import tempfile

import numpy as np
from llama_cpp import GGML_TYPE_F32, Llama

from tiny_models import CONTEXT, POSITIONS, VARIANTS, tokens

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")


def logits(variant):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tiny.gguf")
        variant.write(path, "f32")
        model = Llama(path, n_ctx=CONTEXT, logits_all=True, flash_attn=False, type_k=GGML_TYPE_F32,
                      type_v=GGML_TYPE_F32, n_threads=1, n_threads_batch=1, verbose=False)
        model.eval(tokens())
        return model.scores[POSITIONS].astype(np.float32)


os.makedirs(FOLDER, exist_ok=True)
for name, variant in VARIANTS.items():
    if variant.llama_cpp:
        np.save(os.path.join(FOLDER, f"{name}.llama_cpp.npy"), logits(variant))
