"""Writes the files of matmul_test.cpp: weights quantized and decoded by the gguf package, products by NumPy in fp64.

    pip install -r tests/requirements.txt && python tests/cli/golden/make_matmul.py
"""

import pathlib

import gguf
import numpy as np

HERE = pathlib.Path(__file__).parent
TOKENS, ROWS, COLS = 4, 7, 64
TYPES = {"q4_0": gguf.GGMLQuantizationType.Q4_0, "q5_1": gguf.GGMLQuantizationType.Q5_1,
         "q8_0": gguf.GGMLQuantizationType.Q8_0}


def main():
    random = np.random.default_rng(11)
    x = random.standard_normal((TOKENS, COLS), dtype=np.float32)
    np.save(HERE / "x.npy", x)
    np.save(HERE / "x_fortran.npy", np.asfortranarray(x))
    writer = gguf.GGUFWriter(HERE / "matmul.gguf", "none")
    for name, kind in TYPES.items():
        blocks = gguf.quantize(random.standard_normal((ROWS, COLS), dtype=np.float32), kind)
        writer.add_tensor(name, blocks, raw_dtype=kind)
        decoded = gguf.dequantize(blocks, kind)
        np.save(HERE / f"{name}.y.npy", (x.astype(np.float64) @ decoded.astype(np.float64).T).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
