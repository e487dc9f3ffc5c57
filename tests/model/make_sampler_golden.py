#!/usr/bin/env python3
"""golden/sampler.json: which tokens top-k, top-p and min-p keep, in numpy's doubles.

Logits are multiples of 1/64, so that JSON and float32 hold them exactly. Filters apply in this order, each to what the
one before left: the k best; the fewest best with at least p of the probability; those with at least min_p of the best
one's probability.

Needs: numpy.
"""

import json
import os

import numpy as np

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")

OPTIONS = [(0, 1.0, 0.0), (1, 1.0, 0.0), (7, 1.0, 0.0), (1000, 1.0, 0.0), (0, 0.5, 0.0), (0, 0.9, 0.0), (0, 1e-9, 0.0),
           (0, 0.999, 0.0), (0, 1.0, 0.05), (0, 1.0, 0.5), (0, 1.0, 1.0), (40, 0.95, 0.05), (10, 0.8, 0.1), (5, 0.5, 0.3)]


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def clear(values, bound):
    """No value so near the bound that rounding could decide."""
    return np.abs(values - bound).min() > 1e-7 if 0 < bound < 1 else True


def kept(logits, top_k, top_p, min_p):
    order = np.argsort(-logits, kind="stable")
    if top_k > 0:
        order = order[:top_k]
    cumulative = np.cumsum(softmax(logits[order]))
    if top_p < 1:
        assert clear(cumulative, top_p)
        order = order[: np.searchsorted(cumulative, top_p) + 1]
    if min_p > 0:
        ratio = np.exp(logits[order] - logits[order].max())
        assert clear(ratio, min_p)
        order = order[ratio >= min_p]
    return order.tolist()


def main():
    random = np.random.Generator(np.random.PCG64(7))
    rows, cases = [], []
    for spread in (0.5, 2.0, 6.0):
        logits = np.round(random.normal(0, spread, 60) * 64) / 64
        if spread == 2.0:
            logits[[3, 11, 40]] = logits.max()  # a tie at the top
        for top_k, top_p, min_p in OPTIONS:
            cases.append({"logits": len(rows), "top_k": top_k, "top_p": top_p, "min_p": min_p,
                          "kept": kept(logits, top_k, top_p, min_p)})
        rows.append(logits.tolist())
    with open(os.path.join(FOLDER, "sampler.json"), "w", encoding="utf-8") as file:
        file.write('{"logits": [\n' + ",\n".join(json.dumps(row) for row in rows) + '],\n"cases": [\n'
                   + ",\n".join(json.dumps(case) for case in cases) + "]}\n")


main()
