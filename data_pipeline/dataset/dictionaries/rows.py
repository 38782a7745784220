"""The rows of a dictionary, and what is known of its concepts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import polars as pl

Strings = Sequence[str] | pl.Series


class AboutConcept(NamedTuple):
    """What a dictionary says of a concept."""

    preferred: str  # its preferred name, as the source writes it
    codes: tuple[tuple[str, str], ...] = ()  # (vocabulary, code there)
    types: tuple[str, ...] = ()  # semantic types, such as "T047 Disease or Syndrome"


class Rows(NamedTuple):
    """What a release, a dataset or a table gives to its `Dictionary`, where each is explained."""

    terms: list[str]
    concepts: list[str]
    languages: list[str] | None
    vocabularies: list[tuple[str, ...]] | None
    about_concepts: Mapping[str, AboutConcept]
    made_of: dict[str, Any]  # for the record, beside what was chosen


@dataclass(frozen=True)
class Columns:
    """What is known of concepts, as columns.

    Attributes:
      concepts, preferred: [C], identifiers in their order, and preferred names.
      code_start, code_vocabularies, codes: the codes of concept c are at the places
        code_start[c] .. code_start[c + 1] - 1; the vocabulary of each indexes `vocabularies`.
      type_start, types: likewise; types index `semantic_types`.
    """

    concepts: Strings
    preferred: Strings
    code_start: np.ndarray
    code_vocabularies: np.ndarray
    codes: Strings
    vocabularies: Sequence[str]
    type_start: np.ndarray
    types: np.ndarray
    semantic_types: Sequence[str]


class ConceptTable(Mapping[str, AboutConcept]):
    """What a source tells of its concepts: read when it is first asked for, and made one by one."""

    def __init__(self, read: Callable[[], Columns], sources: Sequence[str] = ()):
        """
        Args:
          read: gives the columns.
          sources: the vocabularies whose codes are told; none: all.
        """
        self.read, self.sources = read, frozenset(sources)

    @cached_property
    def columns(self) -> Columns:
        return self.read()

    def __getitem__(self, concept: str) -> AboutConcept:
        this = self.columns
        place = bisect_left(this.concepts, concept)
        if place == len(this.concepts) or this.concepts[place] != concept:
            raise KeyError(concept)
        coded = [
            (this.vocabularies[this.code_vocabularies[code]], this.codes[code])
            for code in range(this.code_start[place], this.code_start[place + 1])
        ]
        types = this.types[this.type_start[place] : this.type_start[place + 1]]
        return AboutConcept(
            this.preferred[place],
            tuple(pair for pair in coded if not self.sources or pair[0] in self.sources),
            tuple(this.semantic_types[one] for one in types),
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns.concepts)

    def __len__(self) -> int:
        return len(self.columns.concepts)


def shared(sets: Iterable[Iterable[str]]) -> list[tuple[str, ...]]:
    """The sets as tuples, equal ones as one object: the terms of a UMLS have few different ones."""
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    return [known.setdefault(one, one) for one in map(tuple, sets)]
