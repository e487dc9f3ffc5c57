#!/usr/bin/env python3
"""Records golden/ggml_types.json: name, values per block and bytes per block of every tensor type, asked of ggml itself.

    python3 tests/files/record_ggml_types.py      needs the PyPI package llama-cpp-python (0.3.36 made the committed file)

The package gguf is no witness here: it gives q8_1 40 bytes, where ggml has had 36 since its two scales became halves.
"""
import ctypes
import importlib.util
import json
from pathlib import Path


def main():
    package = importlib.util.find_spec("llama_cpp").submodule_search_locations[0]
    ggml = ctypes.CDLL(str(next(Path(package).glob("lib/libggml-base.so"))))
    ggml.ggml_type_name.restype = ctypes.c_char_p
    ggml.ggml_type_size.restype = ctypes.c_size_t
    ggml.ggml_blck_size.restype = ctypes.c_int64
    types = []
    for number in range(43):  # GGML_TYPE_COUNT
        block = ggml.ggml_blck_size(number)
        if block > 0:  # 0: withdrawn
            name = ggml.ggml_type_name(number).decode().lower()
            types.append({"id": number, "name": name, "block": block, "bytes": ggml.ggml_type_size(number)})
    (Path(__file__).parent / "golden" / "ggml_types.json").write_text(json.dumps(types, indent=1) + "\n")


if __name__ == "__main__":
    main()
