"""What the two SmolLM2 scripts share: the windows of text, llama.cpp's logits, distances between distributions."""

import os

import gguf
import numpy as np
from llama_cpp import GGML_TYPE_F32, Llama

from tiny_models import fnv1a

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "golden")
TEXT = os.path.join(HERE, "..", "..", "..", "shared", "corpus", "wikitext2-test.txt")
MODEL = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "octalane",
                     "SmolLM2-135M-Instruct.Q4_1.gguf")

# The first TEXT_BYTES bytes of the text are tokenized; window w holds tokens [w * POSITIONS, (w + 1) * POSITIONS], each
# one but the last is run at positions 0, 1, ..., and the token after it is its target.
TEXT_BYTES, WINDOWS, POSITIONS = 12000, 4, 500


def write_f32(source, path):
    """The same model with every tensor as F32: exactly what its weights decode to."""
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(path, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], sub_type=sub_type)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, values.reshape(tuple(reversed(tensor.shape.tolist()))))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def load(path, exact):
    """exact: fp32 keys, values and attention; else llama.cpp's own defaults."""
    options = {"type_k": GGML_TYPE_F32, "type_v": GGML_TYPE_F32} if exact else {}
    return Llama(path, n_ctx=512, logits_all=True, verbose=False, **options)


def text_tokens(model):
    with open(TEXT, "rb") as file:
        return model.tokenize(file.read(TEXT_BYTES), add_bos=False)[: WINDOWS * POSITIONS + 1]


def tokens_hash(tokens):
    return fnv1a(np.array(tokens, "<i4").tobytes())


def window_logits(model, tokens, window):
    """fp32 [POSITIONS, vocabulary]"""
    model.reset()
    model.eval(tokens[window * POSITIONS : (window + 1) * POSITIONS])
    return model.scores[:POSITIONS].copy()


def log_softmax(logits):
    logits = logits.astype(np.float64)
    logits -= logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


class Comparison:
    """`got` against `wanted`, over the whole vocabulary; both log-probabilities [positions, vocabulary]."""

    def __init__(self):
        self.kld, self.same, self.wanted_nll, self.got_nll = [], [], [], []

    def add(self, wanted, got, targets):
        self.kld.append((np.exp(wanted) * (wanted - got)).sum(axis=-1))
        self.same.append(wanted.argmax(axis=-1) == got.argmax(axis=-1))
        rows = np.arange(len(targets))
        self.wanted_nll.append(-wanted[rows, targets])
        self.got_nll.append(-got[rows, targets])

    def figures(self):
        kld, same = np.concatenate(self.kld), np.concatenate(self.same)
        wanted, got = (float(np.exp(np.concatenate(nll).mean())) for nll in (self.wanted_nll, self.got_nll))
        return {"positions": len(kld), "kld_mean": float(kld.mean()), "kld_p99": float(np.quantile(kld, 0.99)),
                "kld_max": float(kld.max()), "top1": float(same.mean()), "perplexity": got,
                "reference_perplexity": wanted, "perplexity_ratio": got / wanted}
