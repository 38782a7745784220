"""Ranks of gold concepts, with ties, and the scores computed from them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from coder_jax.evaluation.results import intervals_of_means

if TYPE_CHECKING:
    import jax

# Similarities closer than this are ties. Float32 rounding, and the place that a term had in a
# packed batch, move a cosine by about 1e-7; distances that carry meaning are far larger.
TIE_TOLERANCE = 1e-6
_PLACE = re.compile(r"-|([1-9]\d{0,8})(?:\+(\d{1,9})(?:/(\d{1,9}))?)?")  # of GoldCounts.as_text

Array = TypeVar("Array", np.ndarray, "jax.Array")


class GoldCounts(NamedTuple):
    """For each of M mentions, the counts that `rank_scores` uses."""

    ahead: np.ndarray  # int [M]: other concepts that are nearer than the nearest gold concept
    tied: np.ndarray  # int [M]: other concepts as near as it
    gold_tied: np.ndarray  # int [M]: gold concepts as near as it
    reachable: np.ndarray  # bool [M]: a gold concept is in the dictionary; else the rest is void

    def of(self, chosen: np.ndarray | slice) -> GoldCounts:
        """The counts of some of the mentions."""
        return GoldCounts(*(column[chosen] for column in self))

    def as_text(self, same: np.ndarray) -> str:
        """The rank of each mention's gold concept, separated by blanks.

        "3" is the third place; "3+2" says that two other concepts are as near, so that it may be
        the fifth; "3+2/4" that four gold concepts are; "-" that none is in the dictionary. "=17":
        mention and gold concept are those of number 17, counted from 0.

        Args:
          same: int [M], of `results.first_same`.
        """
        texts = []
        rows = zip(*map(np.ndarray.tolist, (*self, same)), strict=True)
        for number, (ahead, tied, gold_tied, reachable, first) in enumerate(rows):
            golds = f"/{gold_tied}" if gold_tied > 1 else ""
            more = f"+{tied}{golds}" if tied or golds else ""
            place = f"{ahead + 1}{more}" if reachable else "-"
            texts.append(place if first == number else f"={first}")
        return " ".join(texts)

    @classmethod
    def from_text(cls, text: str) -> tuple[GoldCounts, np.ndarray]:
        """Parses `as_text`: (the counts, `same`); ValueError for anything else."""
        rows: list[tuple[int, int, int, bool, int]] = []
        for number, place in enumerate(text.split()):
            if place[0] == "=" and place[1:].isdecimal() and int(place[1:]) < number:
                rows.append(rows[int(place[1:])])
                continue
            match = _PLACE.fullmatch(place)
            if match is None:
                raise ValueError(f"found {place[:20]!r}; expected a place such as 3, 3+2 or -")
            rank, tied, golds = (int(number or 0) for number in match.groups())
            rows.append((max(rank - 1, 0), tied, golds or 1, rank > 0, number))
        if not rows:
            raise ValueError("found no place; expected one or more, such as 3, 3+2 or -")
        ahead, tied_n, gold_tied, reachable, same = np.array(rows).T
        return cls(ahead, tied_n, gold_tied, reachable.astype(bool)), same


def ahead_and_tied(
    scores: Array, gold: Array, tolerance: float | np.float32 | jax.Array = TIE_TOLERANCE
) -> tuple[Array, Array]:
    """Which candidates are ahead of the gold one, and which are tied with it.

    Args:
      scores: float, of candidates; -inf for one that is not there.
      gold: float, the score of the gold one, in a shape that broadcasts.
      tolerance: scores closer than this are ties.

    Returns:
      Two bool arrays in the shape of `scores`. The gold one is tied with itself.
    """
    lead = scores - gold
    return lead > tolerance, abs(lead) <= tolerance


def rank_scores(counts: GoldCounts, ks: Sequence[int]) -> dict[str, float]:
    """acc@k and MRR of some mentions, with ties broken at random, for the best and for the worst.

    A mention without a reachable gold concept scores 0.

    Args:
      counts: of the mentions.
      ks: the k of acc@k.

    Returns:
      "acc@k" for each k and "mrr": the mean over all orders of the tied concepts; the same names
      with "_optimistic" (gold concepts first) and "_pessimistic" (gold concepts last).
    """
    values = rank_values(counts, ks)
    ahead, tied, _, reachable = counts
    scores = {}
    for k in ks:
        scores[f"acc@{k}"] = float(values[f"acc@{k}"].mean())
        scores[f"acc@{k}_optimistic"] = _mean(ahead + 1 <= k, reachable)
        scores[f"acc@{k}_pessimistic"] = _mean(ahead + tied + 1 <= k, reachable)
    scores["mrr"] = float(values["mrr"].mean())
    scores["mrr_optimistic"] = _mean(1 / (ahead + 1), reachable)
    scores["mrr_pessimistic"] = _mean(1 / (ahead + tied + 1), reachable)
    return scores


def rank_values(counts: GoldCounts, ks: Sequence[int]) -> dict[str, np.ndarray]:
    """The contribution of each mention to "acc@k" and "mrr", float [n]; see `rank_scores`."""
    ahead, tied, gold_tied, reachable = counts
    values = {
        f"acc@{k}": np.where(reachable, _probability_within(k - ahead, tied, gold_tied), 0)
        for k in ks
    }
    return values | {"mrr": np.where(reachable, _expected_reciprocal_rank(counts), 0)}


def rank_intervals(
    parts: Sequence[GoldCounts],
    same: Sequence[np.ndarray],
    ks: Sequence[int],
    seed: int,
    *,
    of_reachable: bool = False,
) -> dict[str, list[float]]:
    """Bootstrap intervals of acc@k and MRR, of the mean over folds.

    Args:
      parts: the places of the gold concepts of each fold.
      same: of the mentions of each fold (`results.first_same`).
      ks: the k of acc@k.
      seed: of what is drawn.
      of_reachable: of the mentions whose gold concept is in the dictionary.
    """
    groups, equal = [], []
    for part, one in zip(parts, same, strict=True):
        counted = part.reachable if of_reachable else slice(None)
        if len(one[counted]):
            groups.append(rank_values(part.of(counted), ks))
            equal.append(one[counted])
    return intervals_of_means(groups, seed, equal)


def _mean(values: np.ndarray, reachable: np.ndarray) -> float:
    return float(np.where(reachable, values, 0).mean())


def _probability_within(places: np.ndarray, tied: np.ndarray, gold_tied: np.ndarray) -> np.ndarray:
    """P(a gold concept is among the first `places` of the tied ones in random order), per mention.

    One minus the chance of drawing `places` of the `tied` other concepts without replacement.
    """
    missed = np.ones(len(places))
    for drawn in range(max(0, int(places.max()))):
        step = np.maximum(tied - drawn, 0) / np.maximum(tied + gold_tied - drawn, 1)
        missed = np.where(drawn < places, missed * step, missed)
    return 1 - missed


def _expected_reciprocal_rank(counts: GoldCounts) -> np.ndarray:
    """Mean of 1 / rank over random orders of the tied concepts, per mention."""
    ahead, tied, gold_tied, reachable = counts
    expected = 1 / (ahead + 1.0)
    for row in np.flatnonzero(reachable & (tied > 0)):
        others, golds = int(tied[row]), int(gold_tied[row])
        drawn = np.arange(others)
        missed = np.cumprod((others - drawn) / (others + golds - drawn))
        reached = 1 - np.append(missed, 0)  # P(first gold concept at place <= 1, 2, ...)
        expected[row] = np.sum(
            np.diff(reached, prepend=0) / (ahead[row] + 1 + np.arange(others + 1))
        )
    return expected
