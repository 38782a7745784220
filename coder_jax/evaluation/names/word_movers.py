"""Word Mover's Distance: what it costs to move the words of one name onto those of another.

Kusner et al., From word embeddings to document distances, 2015: each name is a distribution over
its words that have a vector (each as often as it occurs); moving a word costs the Euclidean
distance of the vectors, which are of unit length here, as gensim's `wmdistance` has it since 4.0.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Sequence

import numpy as np

from coder_jax.encoding.rows import unit
from coder_jax.evaluation.vectors.words_and_concepts import WordVectors
from data_pipeline.process import stopping

WMD = "Word Mover's Distance"
FARTHEST = 2.0  # of unit vectors; of names without a word that has a vector
TIE = 1e-6


class WordMovers:
    """Minus the distance of names, as a `measures.Baseline`."""

    def __init__(self, words: WordVectors, names: Sequence[str]):
        load_pot()
        self.words = words
        self.vectors = unit(words.table.vectors, "vectors of words", np.float64)
        bags = [self.bag(name) for name in names]
        self.sizes = np.array([len(words) for words, _ in bags])
        self.known = np.flatnonzero(self.sizes)
        # Words and weights of all names that have any, one name after the other.
        self.ends = np.cumsum(self.sizes)
        self.flat = np.concatenate([words for words, _ in bags])
        self.weights = np.concatenate([weights for _, weights in bags])
        self.distinct, self.place = np.unique(self.flat, return_inverse=True)

    def bag(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Int [w] and float [w]: rows of the words of a name, and the share of each."""
        counts = Counter(self.words.rows(name))
        shares = np.array(list(counts.values()), np.float64)
        return np.array(list(counts), np.int64), shares / max(1, shares.sum())

    def of_row(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        part = slice(self.ends[row] - self.sizes[row], self.ends[row])
        return self.flat[part], self.weights[part]

    def similarities(self, queries: Sequence[str], rows: np.ndarray) -> np.ndarray:
        bags = [self.bag(query) for query in queries]
        return -np.array([[self.distance(bag, self.of_row(row)) for row in rows] for bag in bags])

    def distance(
        self, first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray]
    ) -> float:
        """The distance of two bags; FARTHEST if one is empty."""
        import ot  # not at the top: `--help` stays quick, and see `load_pot`

        if not (len(first[0]) and len(second[0])):
            return FARTHEST
        costs = self.costs(first[0], second[0])
        if 1 in costs.shape:  # all goes one way
            return float((first[1][:, None] * second[1] * costs).sum())
        return float(ot.emd2(first[1], second[1], costs))

    def costs(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The distances of words, float [a, b]."""
        cosines = self.vectors[first] @ self.vectors[second].T
        return np.sqrt(np.maximum(2 - 2 * cosines, 0))

    def nearest(self, query: str) -> np.ndarray:
        """Int: the rows of the names that are nearest to a query, of equally near ones all.

        Names are looked at in the order of a lower bound of their distance (section 4 of the paper:
        each word to the nearest one of the other name), until none can be nearer.
        """
        stopping.poll()
        bag = self.bag(query)
        if not len(bag[0]) or not len(self.known):
            return np.arange(len(self.sizes))
        bounds = self._lower_bounds(bag)
        order = np.argsort(bounds, kind="stable")
        best, found = np.inf, []
        for place in order:
            if bounds[place] > best + TIE:
                break
            row = int(self.known[place])
            distance = self.distance(bag, self.of_row(row))
            best = min(best, distance)
            found.append((distance, row))
        return np.array([row for distance, row in found if distance <= best + TIE])

    def _lower_bounds(self, bag: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Of each name of `known`, no more than its distance, float [n]."""
        costs = self.costs(bag[0], self.distinct)[:, self.place]  # [w, words of all names]
        starts = (self.ends - self.sizes)[self.known]
        there = bag[1] @ np.minimum.reduceat(costs, starts, axis=1)
        back = np.add.reduceat(costs.min(axis=0) * self.weights, starts)
        return np.maximum(there, back)


def load_pot() -> None:
    """Loads POT without the libraries that it could compute with: it gets arrays.

    That is each of TensorFlow, PyTorch, jax that is installed. Its files have escapes that Python
    warns of when it compiles them, which is the first import of an installation.
    """
    for name in ("PYTORCH", "JAX", "CUPY", "TENSORFLOW"):
        os.environ.setdefault(f"POT_BACKEND_DISABLE_{name}", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ot  # noqa: F401
