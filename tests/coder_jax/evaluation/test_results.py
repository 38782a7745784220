"""Intervals of scores: against scipy's bootstrap, and against theory."""

import dataclasses

import numpy as np
import pytest
import scipy.stats
from evaluating import ENCODER

from coder_jax.evaluation import results
from coder_jax.evaluation.published import PublishedRow
from coder_jax.evaluation.record import EvaluationRecord
from coder_jax.evaluation.results import (
    _RESAMPLES,
    first_same,
    intervals_of_means,
    missing_column,
    one_decimal,
    percent,
    published_rows,
    ratios,
    resampled,
    short_percent,
    spearman_interval,
)


def scipys(data, statistic, **more):
    found = scipy.stats.bootstrap(
        data, statistic, n_resamples=_RESAMPLES, method="percentile", rng=1, **more
    )
    return [*found.confidence_interval]


def test_a_mean_as_scipy_has_it():
    rng = np.random.default_rng(0)
    values = 1 / rng.integers(1, 6, 300)
    found = intervals_of_means([{"mrr": values, "acc@1": values == 1}])
    for name, column in (("mrr", values), ("acc@1", (values == 1).astype(float))):
        assert found[name] == pytest.approx(scipys((column,), np.mean), abs=0.005)
    assert found == intervals_of_means([{"mrr": values, "acc@1": values == 1}], seed=0)
    assert found != intervals_of_means([{"mrr": values, "acc@1": values == 1}], seed=1)


def test_as_wide_as_theory_says():
    hits = np.arange(2_000) < 1_400
    low, high = intervals_of_means([{"acc@1": hits}])["acc@1"]
    half = 1.96 * np.sqrt(0.7 * 0.3 / 2_000)
    assert (low, high) == pytest.approx((0.7 - half, 0.7 + half), abs=0.0025)


def test_folds_are_drawn_apart():
    """Between folds nothing moves: the mean of all right and all wrong is surely a half."""
    right, wrong, mixed = np.ones(30), np.zeros(50), np.arange(80) % 2
    groups = [{"acc@1": right}, {"acc@1": wrong}]
    assert intervals_of_means(groups)["acc@1"] == [0.5, 0.5]
    low, high = intervals_of_means([{"acc@1": mixed}, {"acc@1": wrong}])["acc@1"]
    half = 1.96 * np.sqrt(0.25 / 80) / 2
    assert (low, high) == pytest.approx((0.25 - half, 0.25 + half), abs=0.008)
    assert intervals_of_means([]) == {}


def test_equal_mentions_are_drawn_together():
    """As scipy draws names, the mean of their mentions being a ratio of sums."""
    rng = np.random.default_rng(0)
    often = rng.integers(1, 30, 60)
    right = rng.random(60) < 0.7
    hits, same = np.repeat(right, often), first_same(np.repeat(np.arange(60), often))
    found = intervals_of_means([{"acc@1": hits}], same=[same])["acc@1"]

    def share(numbers, axis):
        return (right * often)[numbers].sum(axis) / often[numbers].sum(axis)

    assert found == pytest.approx(scipys((np.arange(60),), share), abs=0.01)
    alone = intervals_of_means([{"acc@1": hits}])["acc@1"]
    assert found[1] - found[0] > 3 * (alone[1] - alone[0])
    assert first_same("abab", "1112").tolist() == [0, 1, 0, 3]


def test_resamples_are_as_large_as_the_list(monkeypatch):
    """In parts of any size: each resample has n rows, and a row comes once in the mean."""
    monkeypatch.setattr(results, "_MOST_VALUES", 300)
    rows = np.stack([np.arange(40.0), np.ones(40)], axis=1)
    seen = []

    def noted(distinct, drawn):
        assert (distinct == rows).all() and drawn.shape[1] == 40
        seen.append(drawn)
        return ratios(distinct, drawn)

    found = resampled(rows, noted, np.random.default_rng(0))
    drawn = np.concatenate(seen)
    assert found.shape == (_RESAMPLES, 1) and len(seen) > 200
    assert (drawn.sum(axis=1) == 40).all() and drawn.mean() == pytest.approx(1)
    assert drawn.var() == pytest.approx(1 - 1 / 40, abs=0.05), "with replacement"


def test_a_million_mentions_take_no_longer():
    values = np.arange(1_000_000) % 4 == 0
    low, high = intervals_of_means([{"acc@1": values}])["acc@1"]
    assert 0.248 < low < 0.25 < high < 0.252


def test_spearman_as_scipy_has_it():
    rng = np.random.default_rng(2)
    human = rng.integers(1, 8, 60).astype(float)
    cosines = human + rng.normal(scale=3, size=60)

    def rho(a, b):
        return scipy.stats.spearmanr(a, b).statistic

    expected = scipys((cosines, human), rho, paired=True, vectorized=False)
    assert spearman_interval(cosines, human) == pytest.approx(expected, abs=0.03)


def test_spearman_where_a_resample_has_no_ranks():
    found = spearman_interval(np.array([0.1, 0.2]), np.array([1.0, 2.0]))
    assert found == [1, 1], "half of the resamples are one pair twice"
    assert spearman_interval(np.array([0.1, 0.1]), np.array([1.0, 2.0])) is None


# -------------------------------------------------------------------------------------------------
# Cells of tables: how numbers are printed, columns that come and go, rows of papers.

RECORD = EvaluationRecord(
    **{"benchmark": "my Sim", "kind": "any", "path": "p", "content_hash": "h", "scores": {}},
    **{"counts": {}, "scoring": {}, "encoder": ENCODER},
)


def test_numbers():
    assert (percent(0.12345), percent(1), percent(None)) == ("12.35", "100.00", "undefined")
    assert (short_percent(0.1261), short_percent(0), short_percent(None)) == ("12.6", "0.0", "-")
    assert (one_decimal(3.14), one_decimal(None)) == ("3.1", "-")


def test_missing_is_shown_where_there_is_any():
    none, some = (dataclasses.replace(RECORD, counts={"missing": n}) for n in (0, 3))
    assert missing_column([RECORD, none]) == [] and missing_column([none, some]) == ["missing"]


def test_rows_of_papers_stand_under_the_columns_that_they_have():
    rows = [
        PublishedRow("sim", "P", "1", "A", "cls", {"x": 1.25, "y": 2.0}),
        PublishedRow("sim", "P", "2", "B", "", {"y": 3.0}),
        PublishedRow("sim", "P", "3", "C", "", {"z": 3.0}),
        PublishedRow("rel", "P", "1", "D", "", {"x": 3.0}),
    ]
    found = published_rows([RECORD, RECORD], rows, ["x", "y"], 6, before=3, digits=1)
    assert [(row.encoder, row.published) for row in found] == [
        ("A", "P, table 1"),
        ("B", "P, table 2"),
    ]
    assert found[0].cells == ["my Sim", "cls", "", "1.2", "2.0", ""]
    assert found[1].cells == ["my Sim", "", "", "", "3.0", ""], "no value, no cell"
