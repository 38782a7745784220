"""Precision, recall and F1, by hand, as MLNorm's code counts and as the official tool did."""

import numpy as np
import pytest

from coder_jax.evaluation.given_groups.counts import (
    accuracy_at,
    count_brateval,
    count_brateval_any,
    count_items,
    mean_reciprocal_rank,
    measures,
    measures_drawn,
)


def test_each_gold_cui_is_an_item_with_the_one_answer():
    gold = [("C1",), ("C1", "C2"), ("C1", "C2"), ("C153057",), ("C3",), ("", "C4"), ("C5",)]
    answers = ["C1", "C2", "C9", "C1530575", None, "C4", "C9"]
    counted = count_items(gold, answers)
    assert counted.tolist() == [
        *([1, 1, 1], [1, 2, 2], [0, 2, 2], [0, 1, 1], [0, 0, 1], [1, 2, 2], [0, 1, 1]),
    ]
    # 3 right, 6 wrong and 7 missed: of two CUIs one is right, one wrong and one missed.
    found = measures(counted.sum(axis=0))
    assert found == pytest.approx([3 / 9, 3 / 10, 2 * 3 / (9 + 10)])
    assert count_items([], []).shape == (0, 3)


# What BRATEval-2015-04-24.jar printed of one mention (CompareNotesEHealth, reference folder first):
# TP, FP, FN with exact_match true, then false.
OFFICIAL = [
    (("C1",), "C1", (1, 0, 0), (1, 0, 0)),
    (("C1",), "C2", (0, 1, 1), (0, 1, 1)),
    (("C1",), None, (0, 0, 1), (0, 0, 1)),
    (("C1", "C2"), "C1", (1, 0, 1), (1, 0, 0)),
    (("C1", "C2", "C3"), "C1", (1, 0, 2), (1, 0, 0)),
    (("C1", "C2", "C3"), "C9", (0, 1, 3), (0, 1, 1)),
    (("C1", "C2"), None, (0, 0, 1), (0, 0, 1)),
    (("C1,C2",), "C1", (0, 1, 1), (0, 1, 1)),
]


@pytest.mark.parametrize("gold, answer, exact, common", OFFICIAL)
def test_brateval(gold, answer, exact, common):
    for count, (right, wrong, missed) in ((count_brateval, exact), (count_brateval_any, common)):
        assert count([gold], [answer]).tolist() == [[right, right + wrong, right + missed]]


def test_measures_of_nothing():
    assert measures(np.array([0, 0, 5])).tolist() == [0, 0, 0]
    assert measures(np.array([0, 5, 0])).tolist() == [0, 0, 0]
    assert measures(np.array([0, 0, 0])).tolist() == [1, 1, 1]


def test_what_is_drawn_is_scored_alike():
    counted = np.array([[1, 1, 1], [0, 2, 2], [0, 0, 1]])
    drawn = np.array([[1, 1, 1], [3, 0, 0], [0, 0, 2]])
    found = measures_drawn(counted, drawn)
    for times, row in zip(drawn, found, strict=True):
        assert row == pytest.approx(measures(np.repeat(counted, times, axis=0).sum(axis=0)))


def test_ranks():
    gold = [("C1",), ("C1", "C2"), ("C7",)]
    ranked = [["C9", "C8", "C1"], ["C2", "C1"], []]
    assert mean_reciprocal_rank(gold, ranked) == pytest.approx((1 / 3 + 1 / 2 + 1 + 0) / 4)
    assert accuracy_at(1, gold, ranked) == pytest.approx(1 / 3)
    assert accuracy_at(3, gold, ranked) == pytest.approx(2 / 3)
    assert mean_reciprocal_rank([], []) == accuracy_at(1, [], []) == 0
