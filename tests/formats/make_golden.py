#!/usr/bin/env python3
"""Makes golden/<format>.blocks (raw blocks) and golden/<format>.values (what the PyPI package `gguf` decodes them to),
and golden/{f32,f16,bf16}.encoded: the values of f32.values as gguf and numpy round them.

    python3 tests/formats/make_golden.py            needs the PyPI packages gguf (0.19 made the committed files) and numpy

Per format: random codes under ordinary scales, wholly random bytes, all-zero, all-max codes, and for every scale field
subnormal, negative, negative zero, largest finite, infinite and NaN values. The files are little-endian and small.
"""
from pathlib import Path

import gguf
import numpy as np

SEED = 20240607
RANDOM_BLOCKS = 8  # of 256 values; four times as many of the 32-value kinds
HALVES = [0x0001, 0x03FF, 0x8001, 0xBC00, 0x8000, 0x0000, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFD01]
EXPONENTS = [0, 1, 2, 126, 127, 128, 253, 254, 255]

# name -> byte offsets of its fp16 scale fields
HALF_FIELDS = {
    "q4_0": [0], "q4_1": [0, 2], "q5_0": [0], "q5_1": [0, 2], "q8_0": [0],
    "q2_k": [80, 82], "q3_k": [108], "q4_k": [0, 2], "q5_k": [0, 2], "q6_k": [208],
    "iq4_nl": [0], "iq4_xs": [0],
}


def put_half(block, offset, bits):
    block[offset], block[offset + 1] = bits & 255, bits >> 8


def subsets(fields):
    """Each field alone, then all of them together."""
    return [[field] for field in fields] + ([fields] if len(fields) > 1 else [])


def scaled_blocks(rng, size, fields, values):
    """Blocks of a format whose scales are fp16 fields at the given offsets."""
    ordinary = lambda: int(np.float16(rng.uniform(0.001, 0.1) * rng.choice([-1, 1])).view(np.uint16))
    blocks = []
    for _ in range(RANDOM_BLOCKS * (4 if values == 32 else 1)):
        block = rng.integers(0, 256, size, dtype=np.uint8)
        for field in fields:
            put_half(block, field, ordinary())
        blocks.append(block)
    blocks += [rng.integers(0, 256, size, dtype=np.uint8) for _ in range(4)]
    blocks.append(np.zeros(size, np.uint8))
    full = np.full(size, 255, np.uint8)
    for field in fields:
        put_half(full, field, 0x3555)
    blocks.append(full)
    for special in subsets(fields):
        for bits in HALVES:
            block = rng.integers(0, 256, size, dtype=np.uint8)
            for field in fields:
                put_half(block, field, bits if field in special else ordinary())
            blocks.append(block)
    return np.stack(blocks)


def mxfp4_blocks(rng):
    blocks = rng.integers(0, 256, (32 + len(EXPONENTS), 17), dtype=np.uint8)
    blocks[:32, 0] = rng.integers(110, 140, 32)
    blocks[32:, 0] = EXPONENTS
    full = np.full((1, 17), 255, np.uint8)
    full[0, 0] = 120
    return np.concatenate([blocks, np.zeros((1, 17), np.uint8), full])


def float_blocks(rng, name):
    if name == "f32":
        special = np.array([0, -0.0, 1e-40, -1e-45, 3.4028235e38, np.inf, -np.inf, np.nan,
                            65519.9, 65520, -7e4, 2.0**-25, 1.5 * 2.0**-25, 6.1e-5, 1 + 2.0**-11, 1 + 3 * 2.0**-11], np.float32)
        return np.concatenate([special, rng.standard_normal(496).astype(np.float32)]).view(np.uint8).reshape(-1, 4)
    special = np.array(HALVES + [0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0x007F, 0x0080], np.uint16)
    return np.concatenate([special, rng.integers(0, 65536, 1006, dtype=np.uint16)]).view(np.uint8).reshape(-1, 2)


def main():
    folder = Path(__file__).parent / "golden"
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(SEED)
    names = ["f32", "f16", "bf16", *HALF_FIELDS, "mxfp4"]
    for name in names:
        kind = gguf.GGMLQuantizationType[name.upper()]
        values, size = gguf.GGML_QUANT_SIZES[kind]
        if name in HALF_FIELDS:
            blocks = scaled_blocks(rng, size, HALF_FIELDS[name], values)
        else:
            blocks = mxfp4_blocks(rng) if name == "mxfp4" else float_blocks(rng, name)
        with np.errstate(all="ignore"):
            decoded = gguf.quants.dequantize(blocks.reshape(1, -1), kind).astype("<f4").ravel()
        decoded[np.isnan(decoded)] = np.nan  # one NaN for all machines
        assert blocks.shape[1] == size and decoded.size == len(blocks) * values, name
        (folder / f"{name}.blocks").write_bytes(blocks.tobytes())
        (folder / f"{name}.values").write_bytes(decoded.tobytes())
        if name in ("f32", "f16", "bf16"):
            source = np.frombuffer((folder / "f32.values").read_bytes(), np.float32)
            with np.errstate(all="ignore"):
                (folder / f"{name}.encoded").write_bytes(gguf.quants.quantize(source, kind).tobytes())
        print(f"{name}: {len(blocks)} blocks of {size} bytes, {np.isnan(decoded).sum()} of {decoded.size} values NaN")


if __name__ == "__main__":
    main()
