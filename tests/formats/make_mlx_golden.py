#!/usr/bin/env python3
"""Makes golden/mlx_*.golden, golden/mlx_rows.f32 and golden/mlx.json: what mlx decodes, and how much its quantizer loses.

    python3 tests/formats/make_mlx_golden.py      needs the PyPI packages mlx (0.32.4 made the committed files), numpy, gguf

mlx.json lists matrices; a matrix lies in its file as its parts (weight, scales, biases or global scale), each row by row
as MLX stores it, then as fp32 the values that mlx.core.dequantize makes of them. Affine: groups quantized by MLX from
Gaussian rows (about half of their scales are negative), zero and all-max codes, and scales and biases that are largest,
infinite, NaN, subnormal and negative zero. Others: every scale byte of nvfp4, E8M0 bytes at both ends, every E4M3 code.

Two departures from MLX: an E8M0 scale of 255 is NaN (OCP MX), where MLX has infinity; the sign of a zero is dropped for
E2M1, whose levels are integers here.

"errors" are RMS errors of mlx.core.quantize on rows that encode_mlx_test.cpp makes anew (gauss, laplace: as
record_ggml_errors.py draws them) or reads from mlx_rows.f32, 512 values of each kind. For affine the rows are first
rounded to the type of the scales, as MLX takes that from its input.
"""
import importlib.metadata
import json
import math
from pathlib import Path

import mlx.core as mx
import numpy as np

from record_ggml_errors import COUNT, SEEDS, SPREAD, gauss, laplace

SEED = 20261130
AFFINE_BITS, AFFINE_GROUPS = (2, 3, 4, 5, 6, 8), (32, 64, 128)
TYPES = {"": mx.bfloat16, "-f16": mx.float16, "-f32": mx.float32}
INTS = {"": np.uint16, "-f16": np.uint16, "-f32": np.uint32}
#        largest, infinite, NaN, subnormal, -0, -largest
SPECIAL = {"": (0x7F7F, 0x7F80, 0x7FC0, 0x0003, 0x8000, 0xFF7F), "-f16": (0x7BFF, 0x7C00, 0x7E00, 0x0003, 0x8000, 0xFBFF),
           "-f32": (0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x00000003, 0x80000000, 0xFF7FFFFF)}
E8M0 = (0, 1, 2, 126, 127, 128, 253, 254, 255)
FP = {"mlx-mxfp4": ("mxfp4", 32, 4), "mlx-mxfp8": ("mxfp8", 32, 8), "mlx-nvfp4": ("nvfp4", 16, 4)}
mx.set_default_device(mx.cpu)


def raw(array, kind):
    return np.array(array.view(mx.uint16 if kind == np.uint16 else mx.uint32))


def from_raw(bits, suffix):
    return mx.array(bits).view(TYPES[suffix])


def affine_matrix(rng, bits, group, suffix):
    """Three rows of four groups: quantized; all special scales and biases, among them codes 0 and all codes at most."""
    words = group * bits // 32
    quantized = mx.quantize(mx.array(rng.standard_normal((1, 4 * group)).astype(np.float32)).astype(TYPES[suffix]),
                            group_size=group, bits=bits)
    weight = rng.integers(0, 2**32, (3, 4 * words), dtype=np.uint32)
    scales = raw(mx.array(rng.uniform(-0.1, 0.1, (3, 4)).astype(np.float32)).astype(TYPES[suffix]), INTS[suffix])
    biases = raw(mx.array(rng.uniform(-1, 1, (3, 4)).astype(np.float32)).astype(TYPES[suffix]), INTS[suffix])
    weight[0], scales[0], biases[0] = np.array(quantized[0])[0], raw(quantized[1], INTS[suffix])[0], raw(quantized[2], INTS[suffix])[0]
    largest, infinite, nan, subnormal, negative_zero, lowest = SPECIAL[suffix]
    weight[1, :words] = 0
    weight[1, words:2 * words] = 0xFFFFFFFF
    scales[1, 2:] = largest, infinite
    biases[2] = nan, subnormal, negative_zero, lowest
    scales[2, 1:3] = subnormal, negative_zero
    return weight, scales, biases


def decode_affine(parts, bits, group, suffix):
    weight, scales, biases = parts
    return np.array(mx.dequantize(mx.array(weight), from_raw(scales, suffix).astype(mx.float32),
                                  from_raw(biases, suffix).astype(mx.float32), group_size=group, bits=bits, dtype=mx.float32))


def fp_matrix(rng, name):
    mode, group, bits = FP[name]
    if mode == "nvfp4":
        scales = np.arange(256, dtype=np.uint8)
    else:
        scales = np.concatenate([np.repeat(np.array(E8M0, np.uint8), 8), rng.integers(110, 140, 8, dtype=np.uint8)])
    weight = rng.integers(0, 256, (len(scales), group * bits // 8), dtype=np.uint8)
    if mode == "mxfp8":  # eight groups of every code under each scale
        weight = np.tile(np.arange(256, dtype=np.uint8).reshape(8, 32), (len(scales) // 8, 1))
    quantized = mx.quantize(mx.array(rng.standard_normal((4, 8 * group)).astype(np.float32)), mode=mode)
    weight = np.concatenate([weight.reshape(-1).view(np.uint32), np.array(quantized[0]).reshape(-1)])
    scales = np.concatenate([scales, np.array(quantized[1]).reshape(-1)])
    return weight.reshape(8, -1), scales.reshape(8, -1)


def decode_fp(parts, name, global_scale=None):
    mode, group, bits = FP[name]
    values = np.array(mx.dequantize(mx.array(parts[0]), mx.array(parts[1]), group_size=group, bits=bits, mode=mode,
                                    global_scale=global_scale, dtype=mx.float32))
    if mode != "nvfp4":
        values[np.repeat(parts[1] == 255, group, axis=1)] = np.nan
    return values + np.float32(0) if bits == 4 else values


class Writer:
    def __init__(self, folder):
        self.folder, self.files, self.matrices = folder, {}, []

    def add(self, file, name, parts, values):
        values = np.where(np.isnan(values), np.float32(np.nan), values).astype("<f4")  # one NaN for all machines
        piece = b"".join(part.tobytes() for part in parts) + values.tobytes()
        self.matrices.append({"format": name, "file": file, "offset": len(self.files.get(file, b"")),
                              "rows": values.shape[0], "cols": values.shape[1]})
        self.files[file] = self.files.get(file, b"") + piece


def special_rows(rng):
    n = 512
    normal = rng.standard_normal(n)
    outliers = normal.copy()
    outliers[rng.choice(n, 12, replace=False)] *= 50
    return {"normal": normal, "all_negative": -rng.uniform(0.1, 1, n), "all_positive": rng.uniform(2, 3, n),
            "near_ten": rng.uniform(10, 10.1, n), "near_minus_ten": -rng.uniform(10, 10.1, n), "zero": np.zeros(n),
            "one_value": np.repeat(rng.standard_normal(n // 128), 128), "tiny": 1e-6 * normal, "outliers": outliers,
            "two_values": np.where(normal > 0, 0.3, -0.7), "huge": 1e4 * normal}


def rms(x):
    """Rounded once, whatever the processor adds first."""
    values = np.asarray(x, np.float64).ravel()
    return math.sqrt(math.fsum(values * values) / max(1, len(values)))


def affine_error(x, bits, group, suffix):
    rows = mx.array(x.reshape(-1, 512)).astype(TYPES[suffix])
    weight, scales, biases = mx.quantize(rows, group_size=group, bits=bits)
    values = mx.dequantize(weight, scales.astype(mx.float32), biases.astype(mx.float32), group_size=group, bits=bits, dtype=mx.float32)
    rows = np.array(rows.astype(mx.float32)).astype(np.float64)
    return rms(rows), rms(np.array(values) - rows)


def fp_error(x, name):
    mode, group, bits = FP[name]
    rows = x.reshape(-1, 512)
    parts = mx.quantize(mx.array(rows), mode=mode)
    return rms(rows), rms(np.array(mx.dequantize(*parts[:2], group_size=group, bits=bits, mode=mode, dtype=mx.float32)).astype(np.float64) - rows)


def main():
    folder = Path(__file__).parent / "golden"
    rng = np.random.default_rng(SEED)
    writer = Writer(folder)
    affine = [(f"mlx-affine-{b}-g{g}{s}", (b, g, s)) for s in TYPES for g in AFFINE_GROUPS for b in AFFINE_BITS]
    for name, shape in affine:
        parts = affine_matrix(rng, *shape)
        writer.add("mlx_affine.golden", name, parts, decode_affine(parts, *shape))
    for name in FP:
        parts = fp_matrix(rng, name)
        writer.add("mlx_fp.golden", name, parts, decode_fp(parts, name))
    for amax in (3.7, 2688.0, 1e-3, 3e5):
        amax = np.float32(amax)
        parts = fp_matrix(rng, "mlx-nvfp4")
        values = decode_fp(parts, "mlx-nvfp4", mx.array(amax))
        writer.add("mlx_fp.golden", "mlx-nvfp4-scaled", (*parts, np.array([amax / np.float32(2688)], "<f4")), values)

    kinds = {kind: values.astype("<f4") for kind, values in special_rows(rng).items()}
    rows = [("gauss", seed, gauss(seed)) for seed in SEEDS] + [("laplace", seed, laplace(seed)) for seed in SEEDS]
    rows += [(kind, 0, values) for kind, values in kinds.items()]
    errors = []
    for kind, seed, x in rows:
        for name, measure in [(n, lambda x, a=a: affine_error(x, *a)) for n, a in affine] + [(n, lambda x, n=n: fp_error(x, n)) for n in FP]:
            size, error = measure(x)
            errors.append({"format": name, "rows": kind, "seed": seed, "count": len(x), "rms": size, "rms_error": error})

    for file, data in writer.files.items():
        (folder / file).write_bytes(data)
    (folder / "mlx_rows.f32").write_bytes(b"".join(values.tobytes() for values in kinds.values()))
    lines = lambda items: ",\n".join(" " + json.dumps(item, separators=(",", ":")) for item in items)
    (folder / "mlx.json").write_text(
        f'{{"mlx": "{importlib.metadata.version("mlx")}", "spread": {SPREAD}, "kinds": {json.dumps(list(kinds))},\n'
        f'"matrices": [\n{lines(writer.matrices)}\n],\n"errors": [\n{lines(errors)}\n]}}\n')
    print(f"{len(writer.matrices)} matrices, {len(errors)} errors", {file: len(data) for file, data in writer.files.items()})


if __name__ == "__main__":
    main()
