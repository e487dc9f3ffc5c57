"""Prefill and decode tokens/s of llama.cpp through its C API, as its own bench does it: random tokens, one warm-up."""

import importlib.metadata
import json
import random
import time

import llama_cpp


# Kept alive for as long as the library may call it.
SILENT = llama_cpp.llama_log_callback(lambda level, text, data: None)


def version():
    return {"llama_cpp_python": importlib.metadata.version("llama-cpp-python"),
            "system": llama_cpp.llama_print_system_info().decode()}


def decode(context, tokens, first, logits_last=True):
    batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i] = token
        batch.pos[i] = first + i
        batch.n_seq_id[i] = 1
        batch.seq_id[i][0] = 0
        batch.logits[i] = logits_last and i == len(tokens) - 1
    if llama_cpp.llama_decode(context, batch) != 0:
        raise RuntimeError("llama_decode failed")
    llama_cpp.llama_synchronize(context)
    llama_cpp.llama_batch_free(batch)


def main(path, threads, prompt, generate):
    llama_cpp.llama_log_set(SILENT, None)
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = prompt + generate + 8
    params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = threads
    context = llama_cpp.llama_init_from_model(model, params)
    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    draw = random.Random(1)
    tokens = [draw.randrange(vocabulary) for _ in range(prompt)]
    memory = llama_cpp.llama_get_memory(context)

    result = {}
    for timed in (False, True):
        llama_cpp.llama_memory_clear(memory, True)
        start = time.perf_counter()
        for first in range(0, prompt, 512):
            decode(context, tokens[first:first + 512], first)
        prefill = time.perf_counter() - start
        llama_cpp.llama_memory_clear(memory, True)
        start = time.perf_counter()
        for position in range(generate if timed else 2):
            decode(context, [draw.randrange(vocabulary)], position)
        result = {f"prefill {prompt}": prompt / prefill, f"decode {generate}": generate / (time.perf_counter() - start)}
    print(json.dumps(result))
