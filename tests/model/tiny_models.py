"""Tiny models of every family and rope variant: made from a formula that model_tiny.h repeats in C++.

Weights are int8 codes times a power of two, so they are the same in Q8_0, bfloat16 and fp32: whatever a runtime
rounds, it is not the weights.
"""

import gguf
import numpy as np

VOCABULARY = 300
EMBEDDING = 64
FEED_FORWARD = 96
LAYERS = 2
CONTEXT = 256
TOKENS = 40
POSITIONS = [0] + list(range(4, TOKENS, 5))  # whose logits are recorded
CODE_SCALE = {"token_embd.weight": 2.0**-8, "output.weight": 2.0**-8}
PLAIN_SCALE = 2.0**-9


def mix(words):
    """splitmix64's finalizer (Steele, Lea, Flood 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def words(name, count):
    """`count` 64-bit words that depend on the name alone (its FNV-1a hash starts a splitmix64 sequence)."""
    with np.errstate(over="ignore"):
        return mix(np.uint64(fnv1a(name.encode())) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))


def codes(name, count):
    return (words(name, count) >> np.uint64(56)).astype(np.uint8).astype(np.int16) - 128


def tokens():
    return [int(word % np.uint64(VOCABULARY)) for word in words("tokens", TOKENS)]


class Variant:
    """One model: `keys` are metadata beyond the sizes, `oracle` who can run it."""

    def __init__(self, architecture, *, head_dim=16, tied=True, biases=(), divisors=False, keys=None, llama_cpp=True):
        self.architecture, self.head_dim, self.tied, self.biases = architecture, head_dim, tied, biases
        self.divisors, self.keys, self.llama_cpp = divisors, keys or {}, llama_cpp
        self.heads, self.kv_heads = 4, 2

    def shapes(self):
        """name -> numpy shape, in file order."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes = {"token_embd.weight": (VOCABULARY, EMBEDDING)}
        for layer in range(LAYERS):
            parts = {
                "attn_q": (q, EMBEDDING), "attn_k": (kv, EMBEDDING), "attn_v": (kv, EMBEDDING),
                "attn_output": (EMBEDDING, q), "ffn_gate": (FEED_FORWARD, EMBEDDING),
                "ffn_up": (FEED_FORWARD, EMBEDDING), "ffn_down": (EMBEDDING, FEED_FORWARD),
            }
            for norm in ("attn_norm", "ffn_norm"):
                shapes[f"blk.{layer}.{norm}.weight"] = (EMBEDDING,)
            if self.architecture == "qwen3":
                for norm in ("attn_q_norm", "attn_k_norm"):
                    shapes[f"blk.{layer}.{norm}.weight"] = (self.head_dim,)
            for part, shape in parts.items():
                shapes[f"blk.{layer}.{part}.weight"] = shape
                if part in self.biases:
                    shapes[f"blk.{layer}.{part}.bias"] = shape[:1]
        shapes["output_norm.weight"] = (EMBEDDING,)
        if not self.tied:
            shapes["output.weight"] = (VOCABULARY, EMBEDDING)
        if self.divisors:
            shapes["rope_freqs.weight"] = (self.head_dim // 2,)
        return shapes

    def tensors(self):
        """name -> fp32 values. Vectors: norms around 1, biases around 0, divisors from 1 to 8."""
        values = {}
        for name, shape in self.shapes().items():
            code = codes(name, int(np.prod(shape))).reshape(shape)
            if len(shape) == 2:
                value = code * CODE_SCALE.get(name, PLAIN_SCALE)
            elif name == "rope_freqs.weight":
                value = 1 + (code + 128) * 7 / 256
            elif name.endswith(".bias"):
                value = code / 256
            else:
                value = 1 + code / 512
            values[name] = value.astype(np.float32)
        return values

    def metadata(self):
        keys = {
            "context_length": CONTEXT, "embedding_length": EMBEDDING, "block_count": LAYERS,
            "feed_forward_length": FEED_FORWARD, "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads, "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.freq_base": 10000.0, "vocab_size": VOCABULARY,
        }
        if self.head_dim * self.heads != EMBEDDING:
            keys.update({"attention.key_length": self.head_dim, "attention.value_length": self.head_dim})
        return keys | self.keys

    def write(self, path, weights):
        """weights: "f32" or "q8_0" for the matrices; vectors are always F32."""
        writer = gguf.GGUFWriter(path, self.architecture)
        writer.add_name("tiny")
        for key, value in self.metadata().items():
            full = f"{self.architecture}.{key}"
            {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)](full, value)
        add_vocabulary(writer)
        for name, value in self.tensors().items():
            if weights == "q8_0" and value.ndim == 2:
                scale = CODE_SCALE.get(name, PLAIN_SCALE)
                writer.add_tensor(name, q8_0(value, scale), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
            else:
                writer.add_tensor(name, value)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def q8_0(value, scale):
    blocks = (value / scale).astype(np.int8).reshape(value.shape[0], -1, 32).view(np.uint8)
    head = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
    head = np.broadcast_to(head, blocks.shape[:2] + (2,))
    return np.concatenate([head, blocks], axis=2).reshape(value.shape[0], -1)


def add_vocabulary(writer):
    """Byte-level BPE: 256 bytes, 41 pairs of letters, three control tokens."""
    kept = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    moved = [byte for byte in range(256) if byte not in kept]
    symbol = {byte: chr(byte) for byte in kept} | {byte: chr(256 + i) for i, byte in enumerate(moved)}
    pairs = [("\u0120", c) for c in "taoisw"] + [("e", c) for c in "rnsd "[:4]]
    pairs += [(a, b) for a in "th" for b in "hiae" if a != b] + [(a, b) for a in "aiou" for b in "nrstm"]
    pairs += [(a, b) for a in "lmn" for b in "eao"]
    pairs = list(dict.fromkeys(pairs))[:41]
    assert len(pairs) == 41
    texts = [symbol[byte] for byte in range(256)] + [a + b for a, b in pairs]
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(texts + control)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(texts) + [gguf.TokenType.CONTROL] * len(control))
    writer.add_token_merges([f"{a} {b}" for a, b in pairs])
    writer.add_bos_token_id(297)
    writer.add_eos_token_id(299)
    writer.add_add_bos_token(False)


QKV = ("attn_q", "attn_k", "attn_v")
YARN = {
    "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 512,
}
VARIANTS = {
    "llama_tied": Variant("llama"),
    "llama_untied": Variant("llama", tied=False),
    "llama_rope_freqs": Variant("llama", divisors=True),
    "llama_linear": Variant("llama", keys={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
    "llama_biases": Variant("llama", biases=QKV + ("attn_output", "ffn_gate", "ffn_up", "ffn_down")),
    "qwen2": Variant("qwen2", biases=QKV),
    "qwen2_yarn": Variant("qwen2", biases=QKV, keys=YARN),
    "qwen3": Variant("qwen3", head_dim=32, tied=False),
    # llama.cpp has no llama or qwen2 with these two: the fp64 transformer of reference.py alone answers.
    "llama_partial_rotary": Variant("llama", keys={"rope.dimension_count": 8}, llama_cpp=False),
    "qwen2_partial_rotary": Variant("qwen2", biases=QKV, keys={"rope.dimension_count": 8}, llama_cpp=False),
    "llama_attention_scale": Variant("llama", keys={"attention.scale": 0.5}, llama_cpp=False),
}
