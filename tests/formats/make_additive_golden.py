#!/usr/bin/env python3
"""Makes golden/additive.golden and golden/additive.json, and the folders ../checkpoint/golden/{codegemm,aqlm}: matrices of
additive codebooks as CodeGEMM and AQLM store them, with the values that numpy makes of them.

    python3 tests/formats/make_additive_golden.py      needs the PyPI packages numpy, safetensors

additive.json lists matrices; each lies in additive.golden as codes, codebooks, scales, then its values in fp32: the sum of
the codewords from the first codebook to the last, times the scale, each operation in fp32. 160 columns: the last group
of 64 and of 128 is a shorter one. Row 0 has all codes 0, row 1 all codes 255; scales of both signs, subnormal,
infinite and NaN; codewords of both zeros, subnormal and largest.
"""
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

SEED, ROWS, COLS = 20261201, 5, 160
GROUPS = {"g32": 32, "g64": 64, "g128": 128, "row": COLS}


def f16(bits):
    return np.array(bits, np.uint16).view(np.float16)


def random_matrix(rng, books, vector, group):
    """codes [N, K / v, m], codebooks [m, 256, v], scales [N, ceil(K / g)]"""
    codes = rng.integers(0, 256, (ROWS, COLS // vector, books), dtype=np.uint8)
    codes[0], codes[1] = 0, 255
    codebooks = rng.standard_normal((books, 256, vector)).astype(np.float16)
    codebooks[0, 1, :4] = f16([0x8000, 0x0000, 0x0003, 0x7BFF])
    codes[2, :2, 0] = 1
    scales = rng.uniform(-0.5, 0.5, (ROWS, -(-COLS // group))).astype(np.float16)
    scales[3, -1:] = f16(0x0003)
    scales[4, 0] = f16(0x7C00)
    scales[4, -1] = f16(0x7E00)
    return codes, codebooks, scales


def values_of(codes, codebooks, scales, group):
    sums = np.zeros((*codes.shape[:2], codebooks.shape[2]), np.float32)
    for book, words in enumerate(codebooks):
        sums += words.astype(np.float32)[codes[:, :, book]]
    return sums.reshape(ROWS, COLS) * np.repeat(scales.astype(np.float32), group, axis=1)[:, :COLS]


def codegemm_tensors(codes, codebooks, scales):
    """Codes [N, K / v, m] -> [m, K / v, N], four K-vectors a word; scales transposed."""
    moved = np.ascontiguousarray(np.transpose(codes, (2, 1, 0))).astype(np.uint32)
    words = sum(moved[:, byte::4, :] << np.uint32(8 * byte) for byte in range(4)).astype("<u4")
    return {"codes": words.view("<i4"), "codebooks": codebooks, "scales": np.ascontiguousarray(scales.T)}


def aqlm_tensors(codes, codebooks, scales):
    return {"codes": codes.view(np.int8), "codebooks": codebooks[:, :, None, :], "scales": scales[:, :, None, None]}


def write_folder(folder, config, tensors, values):
    folder.mkdir(exist_ok=True)
    dense = {"model.embed_tokens.weight": np.arange(12, dtype=np.float16).reshape(3, 4)}
    layer = {f"model.layers.0.mlp.up_proj.{name}": value for name, value in tensors.items()}
    save_file({**dense, **layer}, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config) + "\n")
    values.astype("<f4").tofile(folder / "values.f32")


def main():
    golden = Path(__file__).parent / "golden"
    folders = golden.parent.parent / "checkpoint" / "golden"
    rng = np.random.default_rng(SEED)
    shapes = [(f"additive-m{m}v{v}-{g}", m, v, g, codegemm_tensors) for m in (1, 2) for v in (4, 8) for g in GROUPS]
    shapes += [(f"aqlm-{m}x8", m, 8, "row", aqlm_tensors) for m in (1, 2)]
    matrices, data = [], b""
    for name, books, vector, group, store in shapes:
        matrix = random_matrix(rng, books, vector, GROUPS[group])
        tensors = store(*matrix)
        with np.errstate(invalid="ignore", over="ignore"):
            values = values_of(*matrix, GROUPS[group])
        values = np.where(np.isnan(values), np.float32(np.nan), values).astype("<f4")  # one NaN for all machines
        matrices.append({"format": name, "offset": len(data), "rows": ROWS, "cols": COLS,
                         "bytes": [tensor.nbytes for tensor in tensors.values()]})
        data += b"".join(np.ascontiguousarray(tensor).tobytes() for tensor in tensors.values()) + values.tobytes()
        if name == "additive-m2v8-g128":
            said = {"group_size": 128, "vec_len": 8, "num_codebooks": 2, "nbits_per_codebook": 8}
            write_folder(folders / "codegemm", {"codegemm": said}, tensors, values)
        if name == "aqlm-2x8":
            said = {"quant_method": "aqlm", "in_group_size": 8, "out_group_size": 1, "num_codebooks": 2, "nbits_per_codebook": 8}
            write_folder(folders / "aqlm", {"quantization_config": said}, tensors, values)
    (golden / "additive.golden").write_bytes(data)
    lines = ",\n".join(" " + json.dumps(matrix, separators=(",", ":")) for matrix in matrices)
    (golden / "additive.json").write_text(f"[\n{lines}\n]\n")
    print(f"{len(matrices)} matrices, {len(data)} bytes")


if __name__ == "__main__":
    main()
