#!/usr/bin/env python3
"""Records golden/ggml_errors.json: the RMS error of ggml's own quantizer, which encode_test.cpp holds ours against.

    python3 tests/formats/record_ggml_errors.py MODEL.gguf [libggml-base.so]

Needs the PyPI packages gguf, numpy and llama-cpp-python (whose build brings libggml-base.so). Rows are drawn by the
generator that tests/formats/rows.h also writes out: splitmix64, then Box-Muller or the inverse of the Laplace
distribution in fp64, rounded once to fp32. Real rows are the first of two tensors of the model, decoded by gguf.
"""
import ctypes
import importlib.metadata
import importlib.util
import json
import sys
from pathlib import Path

import gguf
import numpy as np

FORMATS = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"]
COUNT = 65536
SEEDS = [1, 2]
SPREAD = 0.05
REAL_TENSORS = ["token_embd.weight", "blk.7.ffn_down.weight"]


def uniforms(seed, count):
    """splitmix64: the top 53 bits of each output, as fp64 in [0, 1)."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15) * np.arange(1, count + 1, dtype=np.uint64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def gauss(seed):
    u = uniforms(seed, COUNT).reshape(-1, 2)
    radius = np.sqrt(-2 * np.log(1 - u[:, 0]))
    angle = 2 * np.pi * u[:, 1]
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return (SPREAD * pairs.ravel()).astype(np.float32)


def laplace(seed):
    u = uniforms(seed, COUNT) - 0.5
    return (SPREAD * -np.sign(u) * np.log1p(-2 * np.abs(u))).astype(np.float32)


def find_library():
    folder = Path(importlib.util.find_spec("llama_cpp").origin).parent
    return folder / "lib" / "libggml-base.so"


def main():
    model = gguf.GGUFReader(sys.argv[1])
    library = ctypes.CDLL(str(sys.argv[2] if len(sys.argv) > 2 else find_library()))
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]

    rows = [("gauss", seed, gauss(seed)) for seed in SEEDS] + [("laplace", seed, laplace(seed)) for seed in SEEDS]
    for tensor in model.tensors:
        if tensor.name in REAL_TENSORS:
            rows.append((tensor.name, 0, gguf.quants.dequantize(tensor.data, tensor.tensor_type).ravel()[:COUNT].copy()))

    cases = []
    for name in FORMATS:
        kind = gguf.GGMLQuantizationType[name.upper()]
        values, size = gguf.GGML_QUANT_SIZES[kind]
        for source, seed, x in rows:
            blocks = np.zeros(COUNT // values * size, np.uint8)
            written = library.ggml_quantize_chunk(int(kind), x.ctypes.data, blocks.ctypes.data, 0, 1, COUNT, None)
            assert written == blocks.size, name
            error = gguf.quants.dequantize(blocks.reshape(1, -1), kind).ravel().astype(np.float64) - x
            cases.append({"format": name, "rows": source, "seed": seed, "count": COUNT,
                          "rms": float(np.sqrt(np.mean(x.astype(np.float64) ** 2))),
                          "rms_error": float(np.sqrt(np.mean(error**2)))})
    record = {"quantizer": "ggml_quantize_chunk of llama-cpp-python " + importlib.metadata.version("llama-cpp-python"),
              "decoder": "gguf " + importlib.metadata.version("gguf"), "spread": SPREAD, "cases": cases}
    lines = ",\n".join("  " + json.dumps(case) for case in record.pop("cases"))
    path = Path(__file__).parent / "golden" / "ggml_errors.json"
    path.write_text(json.dumps(record)[:-1] + ', "cases": [\n' + lines + "\n]}\n")
    print(f"{path.name}: {len(cases)} cases")


if __name__ == "__main__":
    main()
