#!/usr/bin/env python3
"""Makes golden/safetensors/: files that are not ours, and expected.json, which says what is in them.

    python3 tests/files/make_safetensors_golden.py     needs the PyPI packages of tests/requirements.txt

types.safetensors has every type that the package safetensors writes, shapes of no, one and many dimensions and of no
values, and names that JSON escapes. mlx.safetensors has its header in another order than its data. sharded/ is a model
divided by huggingface_hub, with the index that transformers writes.
"""
import json
import struct
from pathlib import Path

import mlx.core as mx
import numpy as np
from huggingface_hub import split_state_dict_into_shards_factory
from safetensors import TensorSpec, safe_open, serialize_file
from safetensors.numpy import save_file

SEED = 20250311
FOLDER = Path(__file__).parent / "golden" / "safetensors"

DTYPES = {  # as serialize_file spells them: bits of a value
    "bool": 8, "float4_e2m1fn_x2": 8, "uint8": 8, "int8": 8, "float8_e5m2": 8, "float8_e4m3fn": 8, "float8_e8m0fnu": 8,
    "float8_e4m3fnuz": 8, "float8_e5m2fnuz": 8, "int16": 16, "uint16": 16, "float16": 16, "bfloat16": 16, "int32": 32,
    "uint32": 32, "float32": 32, "complex64": 64, "float64": 64, "int64": 64, "uint64": 64,
}


def make_types():
    rng = np.random.default_rng(SEED)
    arrays, specs = [], {}

    def add(name, dtype, shape):
        array = rng.integers(0, 256, int(np.prod(shape)) * DTYPES[dtype] // 8, np.uint8)
        arrays.append(array)
        specs[name] = TensorSpec(dtype=dtype, shape=shape, data_ptr=array.ctypes.data, data_len=array.nbytes)

    for dtype in DTYPES:
        add(f"matrix.{dtype}", dtype, [2, 3])
    add("scalar", "float32", [])
    add("vector", "uint32", [5])
    add("many", "uint8", [1, 2, 1, 3, 1, 2])
    add("no_rows", "bfloat16", [0, 4])
    add("no_columns", "float16", [4, 0])
    add('na\u00efve \u6f22\u5b57 \U0001f9ee "quoted" back\\slash /\b\f\n\r\t\x01\x1f\x7f', "uint8", [3])
    serialize_file(specs, FOLDER / "types.safetensors", metadata={"format": "pt \u00e9 \"\n\""})


def make_mlx():
    arrays = {f"layer.{i}.weight": mx.arange(i + 1, dtype=mx.float32) for i in range(12)}
    arrays["odd"] = mx.zeros((3,), dtype=mx.uint8)
    mx.save_safetensors(str(FOLDER / "mlx.safetensors"), arrays, metadata={"format": "mlx", "by": "hand"})


def make_sharded():
    rng = np.random.default_rng(SEED)
    state = {f"model.layers.{i}.{part}": rng.standard_normal((4, 8 + i)).astype(np.float32)
             for i in range(4) for part in ("up", "down")}
    state["lm_head"] = rng.standard_normal((3,)).astype(np.float16)
    plan = split_state_dict_into_shards_factory(
        state, get_storage_size=lambda array: array.nbytes, get_storage_id=lambda array: None, max_shard_size=400,
        filename_pattern="model{suffix}.safetensors")
    folder = FOLDER / "sharded"
    folder.mkdir(exist_ok=True)
    for file, names in plan.filename_to_tensors.items():
        save_file({name: state[name] for name in names}, folder / file, metadata={"format": "pt"})
    index = {"metadata": plan.metadata, "weight_map": plan.tensor_to_filename}
    text = json.dumps(index, indent=2, sort_keys=True) + "\n"
    (folder / "model.safetensors.index.json").write_text(text)


def read(path):
    """What the package finds; the bytes are cut out by the offsets in the header, which the package has checked."""
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    with safe_open(path, "numpy") as file:
        metadata, names = file.metadata(), set(file.keys())
        dtypes = {name: file.get_slice(name).get_dtype() for name in names}
        shapes = {name: file.get_slice(name).get_shape() for name in names}
    assert names == set(header) - {"__metadata__"}
    tensors = []
    for name in header:
        if name == "__metadata__":
            continue
        begin, end = header[name]["data_offsets"]
        tensors.append({"name": name, "dtype": dtypes[name], "shape": shapes[name], "offset": 8 + length + begin,
                        "data": content[8 + length + begin : 8 + length + end].hex()})
    return {"metadata": metadata, "tensors": tensors}


def main():
    FOLDER.mkdir(exist_ok=True)
    make_types()
    make_mlx()
    save_file({}, FOLDER / "empty.safetensors")
    make_sharded()
    expected = {str(path.relative_to(FOLDER)): read(path) for path in sorted(FOLDER.rglob("*.safetensors"))}
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
