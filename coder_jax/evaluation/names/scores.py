"""What each mention adds to the scores of retrieval and normalization, by any measure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from coder_jax.evaluation.names.measures import Baseline, Measure
from coder_jax.evaluation.names.retrieval import ConceptNames, average_precision
from data_pipeline.dataset.dictionary import Dictionary

ACCURACY, EXACT, MAP = "acc@1", "acc@1 + XM", "map"
REACHED, MAP_REACHED, MAP_DISTINCT = "reached", "map of reached", "map of distinct"


class Pair(NamedTuple):
    """A mention and the concepts, joined with "|", any of which it means."""

    mention: str
    gold: str


class SearchedNames:
    """The names of a dictionary, and what BM25 finds among them for mentions, each once."""

    def __init__(self, dictionary: Dictionary, mentions: Sequence[str]):
        self.names = ConceptNames(dictionary)
        self.mentions = list(dict.fromkeys(mentions))

    @cached_property
    def candidates(self) -> dict[str, np.ndarray]:
        """The concepts of each mention, best first."""
        return {mention: self.names.candidates(mention) for mention in self.mentions}

    @cached_property
    def rows(self) -> np.ndarray:
        """The rows of all names that are candidates."""
        concepts = [one for found in self.candidates.values() for one in found.tolist()]
        return self.names.rows_of(sorted(set(concepts)))

    def precisions(self, measure: Measure, pairs: Sequence[Pair]) -> np.ndarray:
        """The average precision of each pair, float [U]; 0 where no gold concept is reached.

        Equal names are one candidate, which is right if a gold concept has it.
        """
        found = np.zeros(len(pairs))
        for place, (mention, gold) in enumerate(pairs):
            numbers = self.names.numbers(gold)
            if not set(numbers) & set(self.candidates[mention].tolist()):
                continue
            rows = self.names.rows_of(self.candidates[mention])
            strings, first = np.unique(self.names.strings[rows], return_index=True)
            wanted = np.unique(self.names.strings[self.names.rows_of(numbers)])
            (similarity,) = measure.similarities([mention], rows[first])
            found[place] = average_precision(similarity, np.isin(strings, wanted), len(wanted))
        return found

    def reached(self, pairs: Sequence[Pair]) -> np.ndarray:
        """Whether a gold concept of each pair is among the candidates, bool [U]."""
        return np.array(
            [
                bool(set(self.names.numbers(gold)) & set(self.candidates[mention].tolist()))
                for mention, gold in pairs
            ]
        )

    def right(self, baseline: Baseline, pairs: Sequence[Pair]) -> np.ndarray:
        """The chance that the nearest concept of each pair is a gold one, float [U].

        Of equally near concepts one is taken at random.
        """
        nearest: dict[str, set[int]] = {}
        found = np.zeros(len(pairs))
        for place, (mention, gold) in enumerate(pairs):
            if mention not in nearest:
                nearest[mention] = set(self.names.concepts[baseline.nearest(mention)].tolist())
            best = nearest[mention]
            found[place] = len(best.intersection(self.names.numbers(gold))) / max(1, len(best))
        return found


def with_exact_matches(right: np.ndarray, gold: Sequence[str], exact: Sequence[str]) -> np.ndarray:
    """What XM makes of answers, float [n]: where training has the mention, its concept is taken.

    Args:
      right: float [n], of each mention the chance that its answer is right.
      gold: [n], concepts joined with "|".
      exact: [n], likewise, those that training annotations give the mention; "" for none.
    """
    taken = [
        float(bool(set(one.split("|")) & set(other.split("|")))) if other else value
        for value, one, other in zip(right.tolist(), gold, exact, strict=True)
    ]
    return np.array(taken)
