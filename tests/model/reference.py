"""The transformer in fp64 numpy, plainly written: an oracle where no other runs, itself checked against llama.cpp."""

import numpy as np


def to_bf16(x):
    """Rounded to bfloat16 (nearest even), kept wide."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    bits = bits + 0x7FFF + ((bits >> 16) & 1)
    return (bits & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


def to_f16(x):
    return np.asarray(x, np.float32).astype(np.float16).astype(np.float64)


def exact(x):
    return x


def rms_norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def rope_angles(meta, dimensions, divisors, positions):
    """radians[position, pair] and the factor of cosines and sines (YaRN: Peng et al. 2023, appendix A)."""
    pair = np.arange(dimensions // 2)
    base, factor = meta["rope.freq_base"], meta.get("rope.scaling.factor", 1.0)
    radians, magnitude = base ** (-2.0 * pair / dimensions), 1.0
    if divisors is not None:
        radians = radians / divisors
    if meta.get("rope.scaling.type") == "yarn":
        def pair_turning(turns):
            length = meta["rope.scaling.original_context_length"]
            return dimensions * np.log(length / (turns * 2 * np.pi)) / (2 * np.log(base))

        low, high = max(np.floor(pair_turning(32)), 0), min(np.ceil(pair_turning(1)), dimensions - 1)
        kept = 1 - np.clip((pair - low) / max(high - low, 0.001), 0, 1)
        radians = radians * kept + radians / factor * (1 - kept)
        magnitude = 0.1 * np.log(factor) + 1
    else:
        radians = radians / factor
    return np.outer(positions, radians), magnitude


def rotate(x, angles, magnitude, halves):
    """x[position, head, dim], the first 2 * pairs dims turned."""
    pairs = angles.shape[1]
    first = np.arange(pairs) if halves else 2 * np.arange(pairs)
    second = first + pairs if halves else first + 1
    c, s = np.cos(angles)[:, None] * magnitude, np.sin(angles)[:, None] * magnitude
    out = x.copy()
    out[..., first] = x[..., first] * c - x[..., second] * s
    out[..., second] = x[..., first] * s + x[..., second] * c
    return out


def logits(variant, tokens, stage=exact, store=exact):
    """Next-token logits [position, vocabulary]. `stage` rounds every product's input, `store` keys and values."""
    w = {name: value.astype(np.float64) for name, value in variant.tensors().items()}
    meta, heads, kv_heads, dim = variant.metadata(), variant.heads, variant.kv_heads, variant.head_dim
    n, epsilon = len(tokens), meta["attention.layer_norm_rms_epsilon"]
    epsilon = float(np.float32(epsilon))
    halves = variant.architecture != "llama"
    angles, magnitude = rope_angles(meta, meta.get("rope.dimension_count", dim), w.get("rope_freqs.weight"),
                                    np.arange(n))
    scale = meta.get("attention.scale", 1 / np.sqrt(dim))
    mask = np.triu(np.full((n, n), -np.inf), 1)

    def product(name, x):
        y = stage(x) @ w[name + ".weight"].T
        return y + w[name + ".bias"] if name + ".bias" in w else y

    x = w["token_embd.weight"][tokens]
    for layer in range(meta["block_count"]):
        p = f"blk.{layer}."
        h = rms_norm(x, w[p + "attn_norm.weight"], epsilon)
        q = product(p + "attn_q", h).reshape(n, heads, dim)
        k = product(p + "attn_k", h).reshape(n, kv_heads, dim)
        v = product(p + "attn_v", h).reshape(n, kv_heads, dim)
        if p + "attn_q_norm.weight" in w:
            q = rms_norm(q, w[p + "attn_q_norm.weight"], epsilon)
            k = rms_norm(k, w[p + "attn_k_norm.weight"], epsilon)
        q, k = (rotate(z, angles, magnitude, halves) for z in (q, k))
        k, v = (np.repeat(store(z), heads // kv_heads, axis=1) for z in (k, v))
        scores = softmax(np.einsum("ihd,jhd->hij", q, k) * scale + mask)
        x = x + product(p + "attn_output", np.einsum("hij,jhd->ihd", scores, v).reshape(n, heads * dim))
        h = rms_norm(x, w[p + "ffn_norm.weight"], epsilon)
        gate, up = product(p + "ffn_gate", h), product(p + "ffn_up", h)
        x = x + product(p + "ffn_down", gate / (1 + np.exp(-gate)) * up)
    head = "token_embd" if variant.tied else "output"
    return product(head, rms_norm(x, w["output_norm.weight"], epsilon))
