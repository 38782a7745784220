"""The sets of names of a dataset that an encoder of names learns from: of a concept two or more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from data_pipeline.batches.names.word_table import numbered
from data_pipeline.process.errors import BadInput
from data_pipeline.sources.text.words import words_of

if TYPE_CHECKING:
    from data_pipeline.dataset.store import TripletDataset


@dataclass(frozen=True)
class NameSets:
    """Names as words, distinct within their concept.

    Attributes:
        concepts: of each set its identifier in the dataset, [S].
        start: int64 [S + 1]; the names of set s are start[s] .. start[s + 1] - 1, two or more.
        words: the distinct words of all names.
        tokens, token_start: int32 and int64 [N + 1]; the numbers of a name's words with the marks
            around them, as of `word_table.numbered`.
        wordings: int32 [N], equal for names of equal words, whatever their sets.
    """

    concepts: Sequence[str]
    start: np.ndarray
    words: list[str]
    tokens: np.ndarray
    token_start: np.ndarray
    wordings: np.ndarray

    @cached_property
    def set_of_names(self) -> np.ndarray:
        """int64 [N]: the set of each name."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))


def sets_of(dataset: TripletDataset, most_words: int, languages: Sequence[str] = ()) -> NameSets:
    """The sets of a dataset; names that are the same words are one.

    Args:
        dataset: opened with its strings.
        most_words: of a longer name so many count.
        languages: of the terms that are names; none: all.

    Raises:
        BadInput: if there is no concept of two names, or no term in a language.
    """
    assert dataset.terms is not None and dataset.cuis is not None, "open it with its strings"
    wanted = dataset.in_languages(languages)
    concepts, names, start = [], [], [0]
    for concept, (first, last) in enumerate(
        zip(dataset.term_start[:-1].tolist(), dataset.term_start[1:].tolist(), strict=True)
    ):
        found = {
            tuple(words_of(dataset.terms[n])[:most_words]) for n in range(first, last) if wanted[n]
        }
        found.discard(())
        if len(found) > 1:
            concepts.append(dataset.cuis[concept])
            names += sorted(found)
            start.append(len(names))
    if not concepts:
        of = f" in {' '.join(languages)}" if languages else ""
        raise BadInput(
            f"{dataset.folder}: found {len(dataset.term_start) - 1:,} concepts, none with two names"
            f"{of} of different words; expected concepts with synonyms: build it from a "
            "terminology that has some, or with fewer filters"
        )
    words, tokens, token_start = numbered(names)
    wording: dict[tuple[str, ...], int] = {}
    wordings = np.array([wording.setdefault(name, len(wording)) for name in names], np.int32)
    return NameSets(concepts, np.array(start, np.int64), words, tokens, token_start, wordings)
