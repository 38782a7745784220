"""acc@k and MRR of counts, against every order of the tied concepts."""

import itertools

import numpy as np
import pytest

from coder_jax.evaluation.ranks import GoldCounts, rank_intervals, rank_scores, rank_values

KS = (1, 2, 3, 9)


def orders(ahead, tied, gold_tied):
    """The rank of the first gold concept in each order of the tied ones; each order once."""
    places = range(tied + gold_tied)
    return [ahead + 1 + min(golds) for golds in itertools.combinations(places, gold_tied)]


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_means_over_all_orders(seed):
    rng = np.random.default_rng(seed)
    ahead, tied = rng.integers(0, 4, (2, 12))
    gold_tied, reachable = rng.integers(1, 4, 12), rng.random(12) < 0.8
    found = rank_scores(GoldCounts(ahead, tied, gold_tied, reachable), KS)
    ranks = [
        np.array(orders(*counts)) if held else None
        for *counts, held in zip(ahead, tied, gold_tied, reachable, strict=True)
    ]

    def mean(value):
        return np.mean([0 if one is None else value(one) for one in ranks])

    expected = {
        "mrr": mean(lambda one: np.mean(1 / one)),
        "mrr_optimistic": mean(lambda one: 1 / one.min()),
        # Behind all others that it is tied with, also where it has gold company.
        "mrr_pessimistic": mean(lambda one: 1 / one.max()),
    }
    for k in KS:
        expected[f"acc@{k}"] = mean(lambda one, k=k: np.mean(one <= k))
        expected[f"acc@{k}_optimistic"] = mean(lambda one, k=k: one.min() <= k)
        expected[f"acc@{k}_pessimistic"] = mean(lambda one, k=k: one.max() <= k)
    assert found == pytest.approx(expected)


def test_nothing_is_reachable():
    zeros = np.zeros(3, int)
    scores = rank_scores(GoldCounts(zeros, zeros, zeros, zeros.astype(bool)), [1])
    assert set(scores.values()) == {0.0} and len(scores) == 6


def test_scores_are_the_means_of_what_mentions_add():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 4, (3, 50))
    counts[2] += 1
    reachable = rng.random(50) < 0.8
    parts = GoldCounts(*counts, reachable)
    values, scores = rank_values(parts, [1, 3]), rank_scores(parts, [1, 3])
    assert {name: one.mean() for name, one in values.items()} == {
        name: scores[name] for name in ("acc@1", "acc@3", "mrr")
    }
    assert not any(one[~reachable].any() for one in values.values())
    for of_reachable, chosen in ((False, slice(None)), (True, reachable)):
        found = rank_intervals([parts], [np.arange(50)], [1, 3], 0, of_reachable=of_reachable)
        low, high = found["mrr"]
        part = values["mrr"][chosen]
        half = 1.96 * part.std() / np.sqrt(len(part))
        assert (low, high) == pytest.approx((part.mean() - half, part.mean() + half), abs=0.015)
    nothing = parts._replace(reachable=np.zeros(50, bool))
    assert rank_intervals([nothing], [np.arange(50)], [1], 0, of_reachable=True) == {}
