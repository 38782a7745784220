"""What vectors of names are drawn to: the constants q(s) of a name and g(c) of a concept.

Phan, Sun, Tay 2019, section 3.2, "Choices". Option 1: the vectors of the tokens of the name and of
the concept, which skip-grams have of what was found in text (`--variant names_concepts`). Option 2:
the mean of the vectors of the name's words, and the mean of these over the concept's names. A name
or a concept without a token has the mean of option 2, in the space of option 1.
"""

from __future__ import annotations

import numpy as np

from data_pipeline.batches.names.sets import NameSets
from data_pipeline.batches.names.word_table import WORDS_FROM, WordTable
from data_pipeline.batches.packed_groups import joined
from data_pipeline.skip_gram.store import SkipGrams


class Targets:
    """q of names and g of sets of names.

    Args:
        sets: the names.
        table: their words.
        grams: the vectors.
        tokens: whether option 1 is taken, where there are tokens.

    Attributes:
        counts: how many names and concepts have a token, words with vectors alone, or nothing.
    """

    def __init__(self, sets: NameSets, table: WordTable, grams: SkipGrams, *, tokens: bool):
        self.sets, self.table, self.grams = sets, table, grams
        names, concepts = len(sets.wordings), len(sets.concepts)
        self.name_rows, self.concept_rows = np.full(names, -1), np.full(concepts, -1)
        if tokens:
            words = np.array([*[""] * WORDS_FROM, *sets.words], object)
            bounds = sets.token_start
            self.name_rows = grams.names.rows(
                " ".join(words[sets.tokens[first + 1 : last - 1]])
                for first, last in zip(bounds[:-1], bounds[1:], strict=True)
            )
            self.concept_rows = grams.concepts.rows(sets.concepts)
        has_word = np.add.reduceat(table.rows[sets.tokens] >= 0, sets.token_start[:-1]) > 0
        self.counts = {
            "names with a token": int((self.name_rows >= 0).sum()),
            "names of known words": int(((self.name_rows < 0) & has_word).sum()),
            "names without a target": int(((self.name_rows < 0) & ~has_word).sum()),
            "concepts with a token": int((self.concept_rows >= 0).sum()),
            "concepts": concepts,
        }

    def of_names(self, names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(q, known): float32 [n, width], and bool [n], whether the name has a target; else 0."""
        means, known = self._means_of_words(names)
        return _or_token(means, known, self.name_rows[names], self.grams.names.vectors)

    def of_sets(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(g, known) of sets, likewise: the mean of option 2 is over names with a known word."""
        bounds, (names,) = joined(
            self.sets.start, numbers, np.arange(len(self.sets.wordings), dtype=np.int64)
        )
        means, known = self._means_of_words(names)
        owner = np.repeat(np.arange(len(numbers)), np.diff(bounds))[known]
        of_sets, some = _means(means[known], owner, len(numbers))
        rows = self.concept_rows[numbers]
        return _or_token(of_sets, some, rows, self.grams.concepts.vectors)

    def _means_of_words(self, names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        bounds, (tokens,) = joined(self.sets.token_start, names, self.sets.tokens)
        rows = self.table.rows[tokens]
        owner = np.repeat(np.arange(len(names)), np.diff(bounds))[rows >= 0]
        return _means(self.table.vectors[rows[rows >= 0]], owner, len(names))


def _means(vectors: np.ndarray, owner: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The mean of each owner's vectors, 0 for one of none, and whether it has any."""
    numbers = np.bincount(owner, minlength=count)
    means = np.zeros((count, vectors.shape[1]), np.float32)
    some = numbers > 0
    if some.any():
        first = (np.cumsum(numbers) - numbers)[some]
        means[some] = np.add.reduceat(vectors, first, axis=0) / numbers[some, None]
    return means, some


def _or_token(
    means: np.ndarray, known: np.ndarray, rows: np.ndarray, vectors: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The vectors of tokens where there are rows, else the means."""
    there = rows >= 0
    means[there] = vectors[rows[there]]
    return means, known | there
