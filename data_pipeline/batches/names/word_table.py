"""Words as numbers: the spelling of each, and where its vector is.

The first two numbers are the marks around a name, which are words with characters of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data_pipeline.batches.names.alphabet import (
    END_OF_NAME,
    END_OF_WORD,
    NAME,
    UNKNOWN,
    WORD,
    Alphabet,
)
from data_pipeline.batches.packed_groups import joined
from data_pipeline.skip_gram.store import VectorTable

FIRST, LAST = 0, 1  # the numbers of the marks around a name
WORDS_FROM = 2
HAS_VECTOR = 1  # a kind; 1 + m is that of words whose vector is the trained one of mark m


@dataclass(frozen=True)
class WordTable:
    """Some words.

    Attributes:
        start, characters: int64 [V + 1] and int32, the spellings (`Alphabet.spell`).
        rows: int64 [V], of `vectors`; -1 for a word that has none.
        kinds: int32 [V], HAS_VECTOR, or 1 + the mark whose trained vector stands for it.
        vectors: float32 [n, width].
    """

    start: np.ndarray
    characters: np.ndarray
    rows: np.ndarray
    kinds: np.ndarray
    vectors: np.ndarray

    @classmethod
    def of(cls, words: Sequence[str], alphabet: Alphabet, vectors: VectorTable) -> WordTable:
        """The table of words; word i has the number WORDS_FROM + i."""
        start, characters = alphabet.spell(words)
        marks = [WORD, NAME, END_OF_WORD, WORD, END_OF_NAME, END_OF_WORD]
        found = vectors.rows(words)
        rows = np.concatenate([[-1, -1], found])
        kinds = np.where(rows < 0, 1 + UNKNOWN, HAS_VECTOR)
        kinds[[FIRST, LAST]] = 1 + NAME, 1 + END_OF_NAME
        return cls(
            start=np.concatenate([[0, 3], 6 + start]),
            characters=np.concatenate([np.array(marks, np.int32), characters]),
            rows=rows,
            kinds=kinds.astype(np.int32),
            vectors=vectors.vectors,
        )

    def spelled(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(bounds, characters) of some words, one after the other, as in `packed_groups.joined`."""
        bounds, (characters,) = joined(self.start, words, self.characters)
        return bounds, characters

    def vectors_of(self, words: np.ndarray) -> np.ndarray:
        """float32 [len(words), width]; 0 for words that have none."""
        rows = self.rows[words]
        return np.where((rows >= 0)[:, None], self.vectors[np.maximum(rows, 0)], np.float32(0))


def numbered(names: Sequence[Sequence[str]]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names as numbers of their distinct words, with the marks around each.

    Args:
        names: of each its words.

    Returns:
        (words, tokens, start): the distinct words, in the order in which they come; int32, name i
        is tokens[start[i] : start[i + 1]], FIRST .. LAST.
    """
    numbers: dict[str, int] = {}
    tokens: list[int] = []
    start = [0]
    for words in names:
        tokens.append(FIRST)
        tokens += [numbers.setdefault(word, len(numbers) + WORDS_FROM) for word in words]
        tokens.append(LAST)
        start.append(len(tokens))
    return list(numbers), np.array(tokens, np.int32), np.array(start, np.int64)
