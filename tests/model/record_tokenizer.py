#!/usr/bin/env python3
"""golden/tokenizer/<name>.json: what llama.cpp makes of the vocabularies there, and of SmolLM2's, beside this file.

usage: record_tokenizer.py SMOLLM2.gguf CORPUS_FOLDER

For each: the ids of every hard string, first as plain text, then with special tokens read and begin and end added; the
special ids; a hash over the bytes of all tokens; and a hash over the ids of each of 2,000 lines of a corpus, which
itself is not kept. Ids of more than 64 tokens are kept as count and hash. Hashes are FNV-1a, 64 bits.

Needs: llama-cpp-python 0.3.36.
"""

import ctypes
import json
import os
import struct
import sys

import llama_cpp

from make_tokenizer_golden import FOLDER, hard_strings

CORPUS_LINES = {"wikitext2-test.txt": 1000, "shakespeare.txt": 1000}


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def hash_ids(ids):
    return fnv(struct.pack(f"<{len(ids)}i", *ids))


def corpus_lines(folder):
    """Evenly spread, of the lines that hold more than spaces."""
    for name, count in CORPUS_LINES.items():
        with open(os.path.join(folder, name), "rb") as file:
            lines = [line for line in file.read().split(b"\n") if line.strip(b" ")]
        yield from (lines[i * len(lines) // count] for i in range(count))


class Oracle:
    def __init__(self, path):
        self.llama = llama_cpp.Llama(path, vocab_only=True, verbose=False)
        self.vocab = self.llama._model.vocab
        self.size = llama_cpp.llama_vocab_n_tokens(self.vocab)

    def tokenize(self, text, add_special, parse_special):
        tokens = (llama_cpp.llama_token * (2 * len(text) + 16))()
        count = llama_cpp.llama_tokenize(self.vocab, text, len(text), tokens, len(tokens), add_special, parse_special)
        assert count >= 0
        return list(tokens[:count])

    def piece(self, token, special):
        buffer = ctypes.create_string_buffer(1 << 16)
        count = llama_cpp.llama_token_to_piece(self.vocab, token, buffer, len(buffer), 0, special)
        assert count >= 0
        return buffer.raw[:count]

    def record(self, corpus):
        def kept(ids):
            return ids if len(ids) <= 64 else {"count": len(ids), "hash": hash_ids(ids)}

        pieces = b""
        for token in range(self.size):
            for special in (False, True):
                piece = self.piece(token, special)
                pieces += struct.pack("<I", len(piece)) + piece
        return {
            "size": self.size,
            "bos": llama_cpp.llama_vocab_bos(self.vocab),
            "eos": llama_cpp.llama_vocab_eos(self.vocab),
            "ends": [t for t in range(self.size) if llama_cpp.llama_vocab_is_eog(self.vocab, t)],
            "pieces": fnv(pieces),
            "hard": {name: [kept(self.tokenize(text, False, False)), kept(self.tokenize(text, True, True))]
                     for name, text in hard_strings().items()},
            "corpus": [hash_ids(self.tokenize(line, False, False)) for line in corpus_lines(corpus)],
        }


def save(path, recording):
    with open(path, "w", encoding="utf-8") as file:
        hard = ",\n".join(f"  {json.dumps(name)}: {json.dumps(ids, separators=(',', ':'))}"
                          for name, ids in recording["hard"].items())
        others = ",\n".join(f' "{key}": {json.dumps(recording[key])}' for key in recording if key != "hard")
        file.write("{\n" + others + ',\n "hard": {\n' + hard + "\n }\n}\n")


def main():
    smollm2, corpus = sys.argv[1:]
    files = {name[:-5]: os.path.join(FOLDER, name) for name in sorted(os.listdir(FOLDER)) if name.endswith(".gguf")}
    files["smollm2"] = smollm2
    for name, path in files.items():
        save(os.path.join(FOLDER, name + ".json"), Oracle(path).record(corpus))
        print(name)


main()
