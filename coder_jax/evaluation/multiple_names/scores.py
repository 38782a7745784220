"""Scores of answers that are sets: accuracy, recall of candidates, accuracy of their number.

As Liang, Xue and Ruan count them (arXiv 2101.09101, section 4.2 and tables 2, 7 and 8), M mentions
of which each has a set of gold concepts. A gold concept that the dictionary lacks is -1 in it: no
answer has that, so its mention counts as wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from coder_jax.evaluation.results.bootstrap import intervals_of_means

UNI, MULTI, TOTAL = "uni", "multi", "total"
MOST = 3  # names that a class of their number tells apart: 3 stands for 3 or more


class Share(NamedTuple):
    """How many are right, of how many."""

    right: int
    of: int

    @property
    def value(self) -> float | None:
        """In [0, 1]; None of nothing."""
        return self.right / self.of if self.of else None


def accuracy(
    answers: Sequence[Collection[int]], gold: Sequence[Collection[int]]
) -> dict[str, Share]:
    """How many mentions have exactly their gold as answer, whatever its order.

    Args:
      answers: concepts, [M].
      gold: [M]; it decides the group of a mention, not the answer.

    Returns:
      "uni" of mentions with one gold concept, "multi" of the others, "total" of all.
    """
    right = _are_right(answers, gold)
    is_uni = np.array([len(one) == 1 for one in gold], bool)
    groups = {UNI: is_uni, MULTI: ~is_uni, TOTAL: np.ones(len(gold), bool)}
    return {name: Share(int(right[of].sum()), int(of.sum())) for name, of in groups.items()}


def _are_right(answers: Iterable[Collection[int]], gold: Iterable[Collection[int]]) -> np.ndarray:
    pairs = zip(answers, gold, strict=True)
    return np.array([-1 not in one and set(given) == set(one) for given, one in pairs], bool)


def recall(
    ranked: Sequence[Sequence[int]], gold: Sequence[Collection[int]], ks: Iterable[int]
) -> dict[int, Share]:
    """For each k, how many mentions have *all* their gold among their first k candidates.

    Args:
      ranked: the candidates of each mention, concepts, best first, each once (`distinct`), [M].
      gold: [M].
      ks: numbers of candidates.
    """
    found = {}
    for k in ks:
        pairs = zip(ranked, gold, strict=True)
        right = sum(-1 not in one and set(one) <= set(candidates[:k]) for candidates, one in pairs)
        found[k] = Share(right, len(gold))
    return found


def intervals_of_shares(shares: Mapping[str, Share]) -> dict[str, list[float]]:
    """The bootstrap interval of each share that is of some mentions, [low, high].

    Those that a share is of are drawn anew; shares of other mentions, such as uni, are of theirs.
    """
    outcomes = {
        name: np.repeat([1.0, 0.0], [share.right, share.of - share.right])
        for name, share in shares.items()
        if share.of
    }
    return {name: intervals_of_means([{name: one}])[name] for name, one in outcomes.items()}


def distinct(names_MK: np.ndarray, name_concepts: np.ndarray) -> list[list[int]]:
    """The concepts of ranked names, best first, each at its best name.

    Args:
      names_MK: int [M, K], rows of names.
      name_concepts: int [N], the concept of each name.
    """
    return [list(dict.fromkeys(row)) for row in name_concepts[names_MK].tolist()]


class NumberAccuracy(NamedTuple):
    """How often the number of names is right.

    Attributes:
      uni: of the mentions with one gold concept.
      multi: the unweighted mean of the shares of those with exactly two and with exactly three.
      total: of all mentions; with four or more none is right, as no class says that number.
    """

    uni: float | None
    multi: float | None
    total: float | None


def number_accuracy(numbers: Sequence[int], gold_numbers: Sequence[int]) -> NumberAccuracy:
    """The accuracy of predicted numbers of names (table 8; what it counts, its values imply).

    Args:
      numbers: predicted, 1, 2 or 3, which stands for 3 or more, [M].
      gold_numbers: how many gold concepts each mention has, [M].
    """
    predicted = np.minimum(np.array(numbers, np.int64), MOST)
    actual = np.array(gold_numbers, np.int64)
    right = predicted == actual

    def share(of: np.ndarray) -> float | None:
        return Share(int(right[of].sum()), int(of.sum())).value

    several = [share(actual == number) for number in range(2, MOST + 1)]
    known = [one for one in several if one is not None]
    return NumberAccuracy(
        uni=share(actual == 1),
        multi=sum(known) / len(known) if known else None,
        total=share(np.ones(len(actual), bool)),
    )
