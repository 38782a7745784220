"""A table of vectors in; a vector for each concept, or each term by its words, out."""

from __future__ import annotations

import string
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np

from coder_jax.evaluation.record import VectorFileProtocol
from coder_jax.evaluation.vectors.vectors import CONCEPTS, TERMS
from coder_jax.evaluation.vectors.word2vec_files import VectorTable


class TableVectors(ABC):
    """The vector of a key is the mean of its rows of a table; a key without any has none."""

    keyed_by: str
    vectors_of: str  # what has a row of its own: "words", "names" or "concepts"
    pooling: str
    look_up: str

    def __init__(self, table: VectorTable):
        self.table = table

    @staticmethod
    @abstractmethod
    def keys_of(keys: Iterable[str]) -> set[str]:
        """All entries of a table that may be looked up for these keys."""

    @abstractmethod
    def rows(self, key: str) -> list[int]:
        """Rows of the table that make up a key's vector."""

    def encode(self, keys: Sequence[str]) -> np.ndarray:
        vectors = np.zeros((len(keys), self.table.vectors.shape[1]), np.float32)
        for place, key in enumerate(keys):
            if rows := self.rows(key):
                vectors[place] = self.table.vectors[rows].mean(axis=0)
        return vectors

    features = encode

    def known(self, keys: Sequence[str]) -> np.ndarray:
        return np.array([bool(self.rows(key)) for key in keys], bool)


class WordVectors(TableVectors):
    """A term's vector is the mean over its words that have one (CODER paper, section 4.3).

    Words stand between blanks. One that is not in the file is looked up without the punctuation at
    its ends, then in small letters.
    """

    keyed_by = TERMS
    vectors_of = "words"
    pooling = "mean of words"
    look_up = (
        "words between blanks as they stand, else without punctuation at their ends, else that "
        "in small letters; no other cleaning"
    )

    @staticmethod
    def keys_of(keys: Iterable[str]) -> set[str]:
        return {form for term in keys for word in term.split() for form in forms(word)}

    def rows(self, key: str) -> list[int]:
        row_of = self.table.row_of
        found = (
            next((row_of[form] for form in forms(word) if form in row_of), None)
            for word in key.split()
        )
        return [row for row in found if row is not None]

    @staticmethod
    def words(key: str) -> list[str]:
        """The words that make up a term."""
        return key.split()

    def partly_known(self, keys: Iterable[str]) -> int:
        """Distinct terms some of whose words have a vector and some have none."""
        return sum(0 < len(self.rows(key)) < len(self.words(key)) for key in set(keys))


class ConceptVectors(TableVectors):
    """A concept's own vector."""

    keyed_by = CONCEPTS
    vectors_of = "concepts"
    pooling = "concept"
    look_up = "as they stand"

    @staticmethod
    def keys_of(keys: Iterable[str]) -> set[str]:
        return set(keys)

    def rows(self, key: str) -> list[int]:
        row = self.table.row_of.get(key)
        return [] if row is None else [row]


KINDS: dict[str, type[TableVectors]] = {"words": WordVectors, "concepts": ConceptVectors}


def forms(word: str) -> tuple[str, ...]:
    """How a word is looked up, in this order."""
    bare = word.strip(string.punctuation)
    return tuple(dict.fromkeys((word, bare, bare.lower())))


def vector_file_protocol(vectors: TableVectors) -> VectorFileProtocol:
    """What a record says of these vectors."""
    table = vectors.table
    return VectorFileProtocol(
        model=table.path,
        weights_hash=table.file_hash,
        keyed_by=vectors.vectors_of,
        pooling=vectors.pooling,
        width=table.vectors.shape[1],
        vectors=table.in_file,
        used=len(table.row_of),
        look_up=vectors.look_up,
    )
