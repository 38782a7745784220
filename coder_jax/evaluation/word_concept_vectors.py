"""A table of vectors in; a vector for each concept, or each term by its words, out."""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence

import numpy as np

from coder_jax.evaluation.protocol import VectorFileProtocol
from coder_jax.evaluation.vectors import CONCEPTS, TERMS
from coder_jax.evaluation.word2vec_files import VectorTable


class WordVectors:
    """A term's vector is the mean over its words that have one (CODER paper, section 4.3).

    Words stand between blanks. One that is not in the file is looked up without the punctuation at
    its ends, then in small letters.
    """

    keyed_by = TERMS
    pooling = "mean of words"
    look_up = (
        "words between blanks as they stand, else without punctuation at their ends, else that "
        "in small letters; no other cleaning"
    )

    def __init__(self, table: VectorTable):
        self.table = table

    @staticmethod
    def keys_of(terms: Iterable[str]) -> set[str]:
        """All that may be looked up for these terms."""
        return {form for term in terms for word in term.split() for form in forms(word)}

    def rows(self, term: str) -> list[int]:
        """Rows of the words of a term that have a vector."""
        found = (
            next(
                (self.table.row_of[form] for form in forms(word) if form in self.table.row_of), None
            )
            for word in term.split()
        )
        return [row for row in found if row is not None]

    def encode(self, keys: Sequence[str]) -> np.ndarray:
        vectors = np.zeros((len(keys), self.table.vectors.shape[1]), np.float32)
        for place, key in enumerate(keys):
            if rows := self.rows(key):
                vectors[place] = self.table.vectors[rows].mean(axis=0)
        return vectors

    features = encode

    def known(self, keys: Sequence[str]) -> np.ndarray:
        return np.array([bool(self.rows(key)) for key in keys], bool)

    def partly_known(self, keys: Iterable[str]) -> int:
        """Distinct terms some of whose words have a vector and some have none."""
        return sum(0 < len(self.rows(key)) < len(key.split()) for key in set(keys))


class ConceptVectors:
    """A concept's own vector."""

    keyed_by = CONCEPTS
    pooling = "concept"
    look_up = "as they stand"

    def __init__(self, table: VectorTable):
        self.table = table

    @staticmethod
    def keys_of(concepts: Iterable[str]) -> set[str]:
        """All that may be looked up for these concepts."""
        return set(concepts)

    def rows(self, concept: str) -> list[int]:
        """The row of a concept's vector; empty if it has none."""
        return [self.table.row_of[concept]] if concept in self.table.row_of else []

    def encode(self, keys: Sequence[str]) -> np.ndarray:
        vectors = np.zeros((len(keys), self.table.vectors.shape[1]), np.float32)
        held = [
            (place, self.table.row_of[k]) for place, k in enumerate(keys) if k in self.table.row_of
        ]
        if held:
            places, rows = zip(*held, strict=True)
            vectors[list(places)] = self.table.vectors[list(rows)]
        return vectors

    features = encode

    def known(self, keys: Sequence[str]) -> np.ndarray:
        return np.array([key in self.table.row_of for key in keys], bool)


KINDS: dict[str, type[WordVectors] | type[ConceptVectors]] = {
    "words": WordVectors,
    "concepts": ConceptVectors,
}


def forms(word: str) -> tuple[str, ...]:
    """How a word is looked up, in this order."""
    bare = word.strip(string.punctuation)
    return tuple(dict.fromkeys((word, bare, bare.lower())))


def vector_file_protocol(vectors: WordVectors | ConceptVectors) -> VectorFileProtocol:
    """What a record says of these vectors."""
    table = vectors.table
    return VectorFileProtocol(
        model=table.path,
        weights_hash=table.file_hash,
        keyed_by="words" if isinstance(vectors, WordVectors) else "concepts",
        pooling=vectors.pooling,
        width=table.vectors.shape[1],
        vectors=table.in_file,
        used=len(table.row_of),
        look_up=vectors.look_up,
    )
