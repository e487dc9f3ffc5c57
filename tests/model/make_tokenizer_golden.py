#!/usr/bin/env python3
"""golden/tokenizer/: small vocabularies <name>.gguf, trained here, one for each family of tokenizers; and
replaced.json: what Python's decoder makes of the invalid UTF-8 of hard_strings.json.

The byte-level ones share tokens and merges and differ in the pre-tokenizer; merges reach across words, so that another
way to cut a text gives other tokens. All hold traps: a token that no merge reaches, merges that build no token, a
missing byte, tokens that only their text marks as control tokens, special tokens within each other.

Needs: gguf.
"""

import collections
import json
import os
import re

import gguf

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "tokenizer")

WORDS = """the of and to in is it you that he was for on are with as his they be at one have this from or had by hot
but some what there we can out other were all your when up use word how said an each she which do their time if will
way about many then them would write like so these her long make thing see him two has look more day could go come did
my sound no most number who over know water than call first people may down side been now find any new work part take
get place made live where after back little only round man year came show every good me give our under name very
through just form much great think say help low line before turn cause same mean differ move right boy old too does
tell sentence set three want air well also play small end put home read hand port large spell add even land here must
big high such follow act why ask men change went light kind off need house picture try us again animal point mother
world near build self earth father head stand own page should country found answer school grow study still learn plant
cover food sun four thought let keep eye never last door between city tree cross since hard start might story saw far
sea draw left late run while press close night real life few stop open seem together next white children begin got
walk example ease paper often always music those both mark book letter until mile river car feet care second group
carry took rain eat room friend began idea fish mountain north once base hear horse cut sure watch color face wood
main""".split()

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# (text, kind); what the kinds of the last ones hide, their texts tell.
SPECIALS = [
    ("<|endoftext|>", CONTROL), ("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL), ("<|begin_of_text|>", CONTROL),
    ("<|start_header_id|>", CONTROL), ("<|end_header_id|>", CONTROL), ("<user>", USER_DEFINED),
    ("<username>", USER_DEFINED), ("<a>", USER_DEFINED), ("<a><b>", CONTROL), ("<b><a>", USER_DEFINED),
    ("<|eot_id|>", NORMAL), ("<|fim_prefix|>", USER_DEFINED), ("<|repo_name|>", USER_DEFINED),
    ("<|file_sep|>", CONTROL), ("[unused1]", UNUSED), ("[undefined]", 0),
]


def hard_strings():
    """{name: bytes}"""
    with open(os.path.join(FOLDER, "hard_strings.json"), encoding="utf-8") as file:
        cases = json.load(file)
    return {c["name"]: bytes.fromhex(c["hex"]) if "hex" in c else (c["text"] * c.get("repeat", 1)).encode()
            for c in cases}


def byte_alphabet():
    """GPT-2's character for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


def train(words, merges):
    """Ordinary BPE over {tuple of symbols: count}: the pairs joined, in order."""
    joined = []
    words = dict(words)
    while len(joined) < merges:
        pairs = collections.Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        joined.append(best)
        merged = collections.Counter()
        for word, count in words.items():
            out = []
            for symbol in word:
                if out and (out[-1], symbol) == best:
                    out[-1] += symbol
                else:
                    out.append(symbol)
            merged[tuple(out)] += count
        words = merged
    return joined


def training_text():
    """Pieces of text with their counts: white space with what follows, whatever that is."""
    pieces = collections.Counter()
    for i, word in enumerate(WORDS):
        for form in (word, " " + word, " " + word.capitalize())[: 3 if i < 100 else 2]:
            pieces[form] += 2000 // (i + 10)
    for text in hard_strings().values():
        for piece in re.findall(r"\s*\S+|\s+", text.decode("utf-8", "ignore")):
            if "qz" not in piece and "unreachable" not in piece:  # the traps
                pieces[piece[:24]] += 3
    return pieces


def writer(name, model):
    # llama.cpp reads these of any model, its weights present or not.
    out = gguf.GGUFWriter(os.path.join(FOLDER, name + ".gguf"), "llama")
    out.add_context_length(2048)
    out.add_embedding_length(64)
    out.add_block_count(1)
    out.add_feed_forward_length(64)
    out.add_head_count(1)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_tokenizer_model(model)
    return out


def write(out):
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.close()


def write_byte_level():
    alphabet = byte_alphabet()
    words = collections.Counter()
    for piece, count in training_text().items():
        words[tuple(alphabet[b] for b in piece.encode())] += count
    merges = train(words, 800)

    tokens = [(text, kind) for text, kind in SPECIALS]
    tokens += [(alphabet[b], NORMAL) for b in range(256) if b != 0x07]
    known = {text for text, _ in tokens}
    for left, right in merges:
        if left + right not in known:
            known.add(left + right)
            tokens.append((left + right, NORMAL))
    tokens.append((alphabet[ord(" ")] + "unreachable", NORMAL))
    lines = [left + " " + right for left, right in merges]
    # No tokens: "qz", and with a space before it.
    lines = ["q z", alphabet[ord(" ")] + " qz"] + lines + [lines[5]]
    assert "qz" not in known

    for name, pre in (("smollm", "smollm"), ("llama-bpe", "llama-bpe"), ("qwen2", "qwen2"), ("gpt-2", "gpt-2"),
                      ("default", None)):
        out = writer(name, "gpt2")
        if pre:
            out.add_tokenizer_pre(pre)
        out.add_token_list([text for text, _ in tokens])
        out.add_token_types([kind for _, kind in tokens])
        out.add_token_merges(lines)
        out.add_bos_token_id(3)
        out.add_eos_token_id(2)
        if name == "gpt-2":
            out.add_add_bos_token(True)
            out.add_add_eos_token(True)
        write(out)


def write_score_driven():
    words = collections.Counter()
    for piece, count in training_text().items():
        words[tuple(piece.replace(" ", "\u2581"))] += count
    merges = train(words, 700)

    tokens = [("<unk>", UNKNOWN, 0.0), ("<s>", CONTROL, 0.0), ("</s>", CONTROL, 0.0)]
    tokens += [(f"<0x{b:02X}>", BYTE, 0.0) for b in range(256)]
    tokens += [("<user>", USER_DEFINED, 0.0), ("<username>", USER_DEFINED, 0.0), ("\u2581\u2581\u2581", USER_DEFINED, 0.0),
               ("<|im_end|>", NORMAL, 0.0), ("[unused1]", UNUSED, 0.0), ("<a>", USER_DEFINED, 0.0)]
    known = {text for text, _, _ in tokens}
    for rank, (left, right) in enumerate(merges):
        if left + right not in known:
            known.add(left + right)
            tokens.append((left + right, NORMAL, -float(rank // 3)))  # threes of equal scores
    letters = sorted({c for word in words for c in word if c.isalnum() or c == "\u2581"})
    tokens += [(c, NORMAL, -1000.0 - i) for i, c in enumerate(letters) if ord(c) < 0x500 and c not in known]

    for name in ("spm", "spm-no-prefix"):
        out = writer(name, "llama")
        out.add_token_list([text for text, _, _ in tokens])
        out.add_token_scores([score for _, _, score in tokens])
        out.add_token_types([kind for _, kind, _ in tokens])
        if name == "spm-no-prefix":
            out.add_add_space_prefix(False)
            out.add_add_bos_token(False)
            out.add_add_eos_token(True)
            out.add_unk_token_id(0)
        write(out)


def write_replaced():
    replaced = {}
    for name, text in hard_strings().items():
        decoded = text.decode("utf-8", "replace")
        if decoded.encode() != text:
            replaced[name] = decoded
    with open(os.path.join(FOLDER, "replaced.json"), "w", encoding="utf-8") as file:
        json.dump(replaced, file, indent=0)
        file.write("\n")


if __name__ == "__main__":
    write_replaced()
    write_byte_level()
    write_score_driven()
