"""Pairs of concepts whose relation a linear map of their vectors decides."""

import numpy as np

from coder_jax.evaluation.relation_pairs import RelationPairs
from coder_jax.evaluation.relations import RelationBenchmark


class Table:
    keyed_by = "concepts"

    def __init__(self, vectors):
        self.table = vectors

    def known(self, keys):
        return np.array([key in self.table for key in keys])

    def features(self, keys):
        return np.array([self.table[key] for key in keys], np.float32)


def toy(pairs=400, labels=3, seed=0):
    """Pairs whose label a linear map of the vectors of head and tail decides; all learnable."""
    rng = np.random.default_rng(seed)
    vectors = {f"C{i}": rng.normal(size=6) for i in range(60)}
    heads, tails = (rng.choice(list(vectors), pairs).tolist() for _ in range(2))
    kernel = rng.normal(size=(12, labels))
    joined = [np.concatenate([vectors[h], vectors[t]]) for h, t in zip(heads, tails, strict=True)]
    gold = [f"r{label}" for label in (joined @ kernel).argmax(axis=1)]
    cut = pairs * 4 // 5
    halves = [
        RelationPairs(heads[part], tails[part], gold[part])
        for part in (slice(None, cut), slice(cut, None))
    ]
    return RelationBenchmark("toy", "toy", tuple(halves), "hash"), Table(vectors)
