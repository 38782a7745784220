"""How near names are to each other: by the cosine of vectors, or by words, without an encoder.

A measure is made of a list of names; `similarities` compares others with some of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Protocol

import numpy as np
from scipy import sparse

from coder_jax.encoding.rows import unit
from coder_jax.evaluation.vectors.vectors import Vectors
from data_pipeline.process import stopping
from data_pipeline.sources.text.words import words_of

MOST_SIMILARITIES = 1 << 23  # at a time: 64 MB
JACCARD, SAME_WORDS = "word Jaccard", "same words"


class Measure(Protocol):
    """What says how alike names are; more is nearer."""

    def similarities(self, queries: Sequence[str], rows: np.ndarray) -> np.ndarray:
        """Float [Q, n]: of each query and the names of these rows, int [n]."""


class Baseline(Measure, Protocol):
    """A measure that needs no encoder."""

    def nearest(self, query: str) -> np.ndarray:
        """Int: the rows of the names that are nearest to a query, of equally near ones all."""


class Cosine:
    """The cosine of vectors; of a name without a vector 0."""

    def __init__(self, vectors: Vectors, names: Sequence[str], rows: np.ndarray | None = None):
        """
        Args:
          vectors: have one of each query and name.
          names: [N].
          rows: of the names that will be compared; none: all.
        """
        self.vectors = vectors
        rows = np.arange(len(names)) if rows is None else rows
        self.place = np.full(len(names), -1)
        self.place[rows] = np.arange(len(rows))
        compared = [names[row] for row in rows.tolist()]
        self.unit_vectors = unit(vectors.encode(compared), "vectors of names")

    def similarities(self, queries: Sequence[str], rows: np.ndarray) -> np.ndarray:
        found = unit(self.vectors.encode(list(queries)), "vectors of mentions")
        return found @ self.unit_vectors[self.place[rows]].T


class WordJaccard:
    """Words that two names share, by the words that one or both have; each word counts once.

    Words are those of `sources.text.words`: without punctuation and stop words, in small letters.
    """

    def __init__(self, names: Sequence[str]):
        self.column: dict[str, int] = {}
        words = [set(words_of(name)) for name in names]
        for word in chain.from_iterable(words):
            self.column.setdefault(word, len(self.column))
        self.names = self._matrix(words)

    def _matrix(self, words: Sequence[set[str]]) -> sparse.csr_matrix:
        """1 where a name has a word, float32 [n, V]; words of no name are left out."""
        columns = [[self.column[word] for word in one if word in self.column] for one in words]
        starts = np.concatenate([[0], np.cumsum([len(one) for one in columns])])
        flat = np.fromiter(chain.from_iterable(columns), np.int64, starts[-1])
        shape = len(words), len(self.column)
        return sparse.csr_matrix((np.ones(len(flat), np.float32), flat, starts), shape=shape)

    def similarities(self, queries: Sequence[str], rows: np.ndarray) -> np.ndarray:
        words = [set(words_of(query)) for query in queries]
        names = self.names[rows]
        shared = (self._matrix(words) @ names.T).toarray().astype(np.float64)
        sizes = np.array([len(one) for one in words])[:, None] + np.diff(names.indptr)
        return shared / (sizes - shared)

    def nearest(self, query: str) -> np.ndarray:
        (similarity,) = self.similarities([query], np.arange(self.names.shape[0]))
        return np.flatnonzero(similarity >= similarity.max())


class SameWords:
    """Names are alike if they have the same words, and not at all otherwise."""

    def __init__(self, shared: WordJaccard):
        self.shared = shared

    def similarities(self, queries: Sequence[str], rows: np.ndarray) -> np.ndarray:
        return np.floor(self.shared.similarities(queries, rows))

    def nearest(self, query: str) -> np.ndarray:
        (similarity,) = self.similarities([query], np.arange(self.shared.names.shape[0]))
        return np.flatnonzero(similarity == 1)


def blocks(queries: Sequence[str], names: int) -> Iterator[slice]:
    """Parts of the queries, so many that their similarities to all names fit into memory."""
    size = max(1, MOST_SIMILARITIES // max(1, names))
    for first in range(0, len(queries), size):
        stopping.poll()
        yield slice(first, first + size)
