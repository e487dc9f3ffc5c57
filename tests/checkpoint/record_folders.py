"""Makes the model folders under golden/: what mlx-lm writes for tiny models, and what mlx computes with them.

Run by hand with mlx[cpu], mlx-lm and tokenizers: python record_folders.py. Every folder mixes quantization modes, one per layer, and
comes with tokens.json (texts and their tokens by the tokenizers library) and logits.npy: fp32 logits of every position
of the first text, from weights that mlx dequantized to fp32.
"""

import json
import pathlib
import shutil

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import tokenizers
from mlx.utils import tree_flatten
from mlx_lm import utils
from mlx_lm.models import llama, qwen2, qwen3
from tokenizers import Regex, decoders, models, pre_tokenizers, processors, trainers

GOLDEN = pathlib.Path(__file__).parent / "golden"
SIZES = dict(hidden_size=128, num_hidden_layers=1, intermediate_size=256, num_attention_heads=4, num_key_value_heads=2,
             rms_norm_eps=1e-5, max_position_embeddings=512)
CORPUS = ("Rows of weights lie in groups; each group has a scale, and often a bias. "
          "In 1994 there were 12345 rows. It's the group's own scale that counts, they'd say.\n\n    Indented: x = y * 2;") * 8
TEXTS = ["A group of 32 weights, it's said, has 1 scale.", "They'd count 2024 rows\n\n  and\ttabs, \u00e4\u20ac\U0001F600!",
         "", "<|im_start|>user\nrows<|im_end|>"]

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
SPLITS = {
    "smollm": lambda: [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)],
    "llama-bpe": lambda: [pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                          pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)],
    "qwen2": lambda: [pre_tokenizers.Split(Regex(LLAMA3.replace("{1,3}", "")), "isolated"),
                      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)],
}


def make_tokenizer(kind):
    tokenizer = tokenizers.Tokenizer(models.BPE(ignore_merges=kind == "llama-bpe"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(SPLITS[kind]())
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=310, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
                                  special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"], show_progress=False)
    tokenizer.train_from_iterator([CORPUS], trainer)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    if kind == "llama-bpe":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", tokenizer.token_to_id("<|endoftext|>"))])
    return tokenizer


def random_weights(model, seed):
    mx.random.seed(seed)
    weights = []
    for name, value in tree_flatten(model.parameters()):
        noise = mx.random.normal(value.shape)
        if "norm" in name:
            value = 1 + 0.1 * noise
        elif name.endswith("bias"):
            value = 0.1 * noise
        else:
            value = noise / value.shape[-1] ** 0.5
        weights.append((name, value.astype(mx.bfloat16)))
    model.load_weights(weights)
    mx.eval(model.parameters())


def dense_fp32(model):
    """The same model with fp32 weights in place of quantized ones."""
    def decoded(module):
        biases = getattr(module, "biases", None)
        scales = module.scales if biases is None else module.scales.astype(mx.float32)
        biases = None if biases is None else biases.astype(mx.float32)
        return mx.dequantize(module.weight, scales, biases, group_size=module.group_size, bits=module.bits,
                             mode=module.mode, dtype=mx.float32)

    for path, module in list(model.named_modules()):
        if isinstance(module, nn.QuantizedLinear):
            weight = decoded(module)
            linear = nn.Linear(weight.shape[1], weight.shape[0], bias="bias" in module)
            linear.weight = weight
            if "bias" in module:
                linear.bias = module.bias
        elif isinstance(module, nn.QuantizedEmbedding):
            weight = decoded(module)
            linear = nn.Embedding(*weight.shape)
            linear.weight = weight
        else:
            continue
        parent = model
        *parents, last = path.split(".")
        for part in parents:
            parent = parent[int(part)] if part.isdigit() else getattr(parent, part)
        setattr(parent, last, linear)
    model.update(dict_of_fp32(model))
    return model


def dict_of_fp32(model):
    from mlx.utils import tree_map
    return tree_map(lambda value: value.astype(mx.float32), model.parameters())


def make(name, module, pre, modes, **extra):
    folder = GOLDEN / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tokenizer = make_tokenizer(pre)
    config = {"model_type": name.split("-")[0], **SIZES, "vocab_size": tokenizer.get_vocab_size(), **extra}
    model = module.Model(module.ModelArgs.from_dict(config))
    random_weights(model, len(name))

    def predicate(path, layer):
        if not hasattr(layer, "to_quantized"):
            return False
        return next((mode for part, mode in modes.items() if part in path), True)

    model, config = utils.quantize_model(model, config, group_size=64, bits=4, quant_predicate=predicate)
    utils.save_model(folder, model)
    utils.save_config(config, folder / "config.json")
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"bos_token": "<|endoftext|>", "eos_token": {"content": "<|im_end|>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(special) + "\n")

    tokens = [tokenizer.encode(text).ids for text in TEXTS]
    (folder / "tokens.json").write_text(json.dumps([{"text": t, "tokens": i} for t, i in zip(TEXTS, tokens)]) + "\n")
    logits = dense_fp32(model)(mx.array([tokens[0]]))[0]
    np.save(folder / "logits.npy", np.array(logits.astype(mx.float32)))


def affine(bits, group):
    return {"group_size": group, "bits": bits, "mode": "affine"}


MX = {"mxfp4": {"group_size": 32, "bits": 4, "mode": "mxfp4"}, "mxfp8": {"group_size": 32, "bits": 8, "mode": "mxfp8"},
      "nvfp4": {"group_size": 16, "bits": 4, "mode": "nvfp4"}}

make("llama", llama, "smollm", {"q_proj": affine(2, 32), "k_proj": affine(3, 128), "v_proj": affine(8, 64),
                                "gate_proj": affine(5, 32), "up_proj": affine(6, 64), "embed": affine(8, 32)},
     tie_word_embeddings=True, rope_theta=10000.0,
     rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 8192})
make("qwen2", qwen2, "qwen2", {"q_proj": MX["mxfp4"], "k_proj": MX["nvfp4"], "v_proj": MX["mxfp8"],
                               "gate_proj": MX["mxfp4"], "up_proj": MX["mxfp8"], "down_proj": MX["nvfp4"]},
     tie_word_embeddings=False, rope_theta=1e6)
make("qwen3", qwen3, "llama-bpe", {"o_proj": False}, tie_word_embeddings=True, rope_theta=1e6, head_dim=32)
