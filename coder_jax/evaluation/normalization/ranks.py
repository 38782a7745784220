"""Ranks of gold concepts: who is ahead of them and tied with them, and the scores that follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    import jax

# Similarities closer than this are ties. Float32 rounding, and the place that a term had in a
# packed batch, move a cosine by about 1e-7; distances that carry meaning are far larger.
TIE_TOLERANCE = 1e-6

Array = TypeVar("Array", np.ndarray, "jax.Array")


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


def rank_scores(
    ahead: np.ndarray,
    tied: np.ndarray,
    gold_tied: np.ndarray,
    reachable: np.ndarray,
    ks: Sequence[int],
) -> dict[str, float]:
    """acc@k and MRR of n mentions, with ties broken at random, for the best and for the worst.

    Args:
      ahead: int [n], other concepts that are nearer than the nearest gold concept.
      tied: int [n], other concepts that are as near as it.
      gold_tied: int [n], gold concepts that are as near as it, itself included: 1 or more.
      reachable: bool [n]; where false the mention scores 0 and its counts mean nothing.
      ks: the k of acc@k.

    Returns:
      "acc@k" for each k and "mrr": the mean over all orders of the tied concepts; the same names
      with "_optimistic" (gold concepts first) and "_pessimistic" (gold concepts last).
    """
    scores = {}
    for k in ks:
        expected = _probability_within(k - ahead, tied, gold_tied)
        scores[f"acc@{k}"] = _mean(expected, reachable)
        scores[f"acc@{k}_optimistic"] = _mean(ahead + 1 <= k, reachable)
        scores[f"acc@{k}_pessimistic"] = _mean(ahead + tied + 1 <= k, reachable)
    scores["mrr"] = _mean(_expected_reciprocal_rank(ahead, tied, gold_tied, reachable), reachable)
    scores["mrr_optimistic"] = _mean(1 / (ahead + 1), reachable)
    scores["mrr_pessimistic"] = _mean(1 / (ahead + tied + 1), reachable)
    return scores


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


def _expected_reciprocal_rank(
    ahead: np.ndarray, tied: np.ndarray, gold_tied: np.ndarray, reachable: np.ndarray
) -> np.ndarray:
    """Mean of 1 / rank over random orders of the tied concepts, per mention."""
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
