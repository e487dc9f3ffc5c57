#!/usr/bin/env python3
"""Makes golden/*.gguf, golden/*.npy and golden/expected.json, which says what the PyPI packages read in those files.

    python3 tests/files/make_golden.py            needs the PyPI packages gguf (0.19 made the committed files) and numpy

The files are small: every metadata type, every kind of array, tensors of no, one and many dimensions and of no values,
plain, quantized and of types that are listed but never computed; .npy files of every version, order and shape; and of
both kinds some to be refused.
"""
import json
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import GGUFValueType as V

SEED = 20250311
FOLDER = Path(__file__).parent / "golden"

SCALARS = {
    V.UINT8: [0, 255], V.INT8: [-128, 127], V.UINT16: [0, 65535], V.INT16: [-32768, 32767],
    V.UINT32: [0, 2**32 - 1], V.INT32: [-(2**31), 2**31 - 1], V.UINT64: [0, 2**64 - 1], V.INT64: [-(2**63), 2**63 - 1],
    V.FLOAT32: [0.1, -3.4028234663852886e38, 1e-45], V.FLOAT64: [0.1, -1.7976931348623157e308, 5e-324],
    V.BOOL: [False, True], V.STRING: ["", "plain", "naïve 漢字 \U0001f9ee", "two\nlines", "nul\0inside"],
}
NAMES = {
    V.UINT8: "u8", V.INT8: "i8", V.UINT16: "u16", V.INT16: "i16", V.UINT32: "u32", V.INT32: "i32", V.UINT64: "u64",
    V.INT64: "i64", V.FLOAT32: "f32", V.FLOAT64: "f64", V.BOOL: "bool", V.STRING: "string", V.ARRAY: "array",
}


def write(name, fill, **options):
    """Writes one file with gguf's own writer. `fill` adds keys and tensors."""
    writer = gguf.GGUFWriter(FOLDER / name, "golden", **options)
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_every_key(writer):
    for kind, values in SCALARS.items():
        for i, value in enumerate(values):
            writer.add_key_value(f"scalar.{NAMES[kind]}.{i}", value, kind)
        writer.add_key_value(f"array.{NAMES[kind]}", values, V.ARRAY, sub_type=kind)
    writer.add_array("array.nested", [[1, 2, 3], [4], [5, 6]])
    writer.add_array("array.nested.strings", [["a", "bc"], [""]])


def add_tensors(writer):
    rng = np.random.default_rng(SEED)
    writer.add_tensor("matrix.f32", rng.standard_normal((3, 5), np.float32))
    writer.add_tensor("vector.f16", rng.standard_normal(7).astype(np.float16))
    writer.add_tensor("one.f32", np.array([1.5], np.float32))
    writer.add_tensor("scalar.f32", np.array(-2.5, np.float32))
    writer.add_tensor("no_rows.f32", np.zeros((0, 4), np.float32))
    writer.add_tensor("no_columns.f32", np.zeros((3, 0), np.float32))
    writer.add_tensor("four.i8", rng.integers(-128, 127, (2, 3, 1, 4), np.int8))
    writer.add_tensor("vector.f64", rng.standard_normal(2))
    writer.add_tensor("vector.i64", np.array([-1, 2**40]))
    for kind in [T.Q4_0, T.Q4_1, T.Q8_0, T.MXFP4, T.Q4_K, T.Q6_K, T.BF16, T.IQ2_XXS, T.TQ1_0]:
        block, size = gguf.GGML_QUANT_SIZES[kind]
        row_bytes = size * (3 if block == 1 else 1)
        writer.add_tensor(f"random.{kind.name.lower()}", rng.integers(0, 255, (2, row_bytes), np.uint8), raw_dtype=kind)


def add_aligned(writer):
    writer.add_custom_alignment(128)
    for i in range(3):
        writer.add_tensor(f"t{i}", np.arange(i + 1, dtype=np.float32))


def add_built(writer):
    """What writer_test.cpp builds key by key."""
    writer.add_uint32("count", 7)
    writer.add_int64("signed", -7)
    writer.add_float32("real", 0.25)
    writer.add_bool("flag", True)
    writer.add_string("text", "some words")
    writer.add_array("words", ["a", "", "longer"])
    writer.add_array("numbers", [3, -1, 2])
    writer.add_array("reals", [0.5, -2.0])
    writer.add_tensor("weights", np.arange(64, dtype=np.uint8).reshape(2, 32)[:, :18].copy(), raw_dtype=T.Q4_0)
    writer.add_tensor("bias", np.array([1, 2, 3], np.float32))


def read(name):
    """What gguf's own reader finds in a file."""
    reader = gguf.GGUFReader(FOLDER / name)
    keys, tensors = [], []
    for field in reader.fields.values():
        if field.name.startswith("GGUF."):
            continue
        entry = {"key": field.name, "type": NAMES[field.types[0]]}
        if field.types[0] == V.ARRAY:
            entry["element"] = NAMES[field.types[1]]
        if V.ARRAY not in field.types[1:]:  # the package flattens nested arrays
            entry["value"] = field.contents()
        keys.append(entry)
    for tensor in reader.tensors:
        raw = (FOLDER / name).read_bytes()[tensor.data_offset : tensor.data_offset + tensor.n_bytes]
        tensors.append({
            "name": tensor.name, "type": tensor.tensor_type.name.lower(), "shape": tensor.shape.tolist(),
            "bytes": tensor.n_bytes, "offset": tensor.data_offset, "data": raw.hex(),
        })
    version = int(reader.fields["GGUF.version"].parts[-1][0])
    return {"version": version, "keys": keys, "tensors": tensors}


def make_gguf():
    write("types.v3.gguf", add_every_key)
    write("tensors.v3.gguf", add_tensors)
    write("aligned.v3.gguf", add_aligned)
    write("built.v3.gguf", add_built)
    write("empty.v3.gguf", lambda writer: None)
    write("refused.big_endian.gguf", add_built, endianess=gguf.GGUFEndian.BIG)
    for name in ["types", "tensors", "aligned"]:  # version 2 differs in its number alone
        content = bytearray((FOLDER / f"{name}.v3.gguf").read_bytes())
        content[4] = 2
        (FOLDER / f"{name}.v2.gguf").write_bytes(content)
    return {path.name: read(path.name) for path in sorted(FOLDER.glob("*.v?.gguf"))}


def write_npy(name, array, version):
    with open(FOLDER / name, "wb") as file:
        np.lib.format.write_array(file, array, version=version)


def make_npy():
    rng = np.random.default_rng(SEED)
    matrix = rng.standard_normal((3, 4)).astype("<f4")
    write_npy("c_order.v1.npy", matrix, (1, 0))
    write_npy("c_order.v2.npy", matrix, (2, 0))
    write_npy("c_order.v3.npy", matrix, (3, 0))
    write_npy("fortran.v1.npy", np.asfortranarray(matrix), (1, 0))
    write_npy("fortran.v3.npy", np.asfortranarray(matrix), (3, 0))
    write_npy("vector.v1.npy", matrix[0], (1, 0))
    write_npy("no_rows.v1.npy", np.zeros((0, 4), "<f4"), (1, 0))
    write_npy("no_columns.v1.npy", np.zeros((3, 0), "<f4"), (1, 0))
    write_npy("special.v1.npy", np.array([[np.inf, -np.inf, np.nan, -0.0, 1e-45]], "<f4"), (1, 0))
    refused = {
        "float64.npy": matrix.astype("<f8"), "big_endian.npy": matrix.astype(">f4"), "int32.npy": matrix.astype("<i4"),
        "scalar.npy": np.array(1.5, "<f4"), "cube.npy": matrix.reshape(3, 2, 2),
        "record.npy": np.zeros(2, [("a", "<f4"), ("b", "<f4")]),
    }
    for name, array in refused.items():
        write_npy(name, array, (1, 0))
    read_back = {}
    for path in sorted(FOLDER.glob("*.v?.npy")):
        array = np.atleast_2d(np.load(path))
        bits = np.ascontiguousarray(array).view("<u4") if array.size else array.astype("<u4")
        read_back[path.name] = {"rows": array.shape[0], "cols": array.shape[1], "bits": bits.ravel().tolist()}
    return {"read": read_back, "refused": sorted(refused)}


def main():
    FOLDER.mkdir(exist_ok=True)
    expected = {"gguf": make_gguf(), "npy": make_npy()}
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
