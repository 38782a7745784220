import numpy as np
import pytest

from coder_jax.evaluation.multiple_names.published import MULTIPLE_NAMES
from coder_jax.evaluation.multiple_names.scores import (
    Share,
    accuracy,
    distinct,
    intervals_of_shares,
    number_accuracy,
    recall,
)

GOLD = [{1}, {2}, {3, 4}, {5, 6, 7}, {8, -1}, {-1}]


def test_an_answer_is_right_if_it_is_the_whole_set_in_any_order():
    answers = [[1], [2, 9], [4, 3], [5, 6], [8], []]
    found = accuracy(answers, GOLD)
    # The second has one too many and is still of the uni group, as its gold has one.
    assert found == {"uni": Share(1, 3), "multi": Share(1, 3), "total": Share(2, 6)}
    assert found["total"].value == pytest.approx(1 / 3)


def test_a_mention_whose_gold_the_dictionary_lacks_is_wrong_whatever_is_said():
    assert accuracy([[8, -1], [-1]], [{8, -1}, {-1}])["total"] == Share(0, 2)
    assert recall([[8, -1]], [{8, -1}], [2]) == {2: Share(0, 1)}


def test_nothing_has_no_accuracy():
    assert accuracy([[1]], [{1}])["multi"] == Share(0, 0)
    assert accuracy([[1]], [{1}])["multi"].value is None


def test_recall_wants_all_gold_among_the_first():
    ranked = [[1, 2, 3], [9, 2, 1], [3, 9, 4], [5, 6, 7], [8, 1, 2], [1, 2, 3]]
    assert recall(ranked, GOLD, [1, 2, 3]) == {1: Share(1, 6), 2: Share(2, 6), 3: Share(4, 6)}


def test_recall_counts_concepts_and_not_their_names():
    concepts = np.array([0, 0, 0, 1, 2])
    ranked = distinct(np.array([[2, 0, 1, 3, 4], [4, 0, 3, 1, 2]]), concepts)
    assert ranked == [[0, 1, 2], [2, 0, 1]]
    assert recall(ranked, [{1}, {2}], [1, 2]) == {1: Share(1, 2), 2: Share(2, 2)}


def test_the_number_of_more_than_three_is_never_right():
    found = number_accuracy([1, 1, 2, 2, 3, 3, 4], [1, 2, 2, 1, 3, 4, 3])
    assert found.uni == 1 / 2
    assert found.multi == (1 / 2 + 2 / 2) / 2
    assert found.total == 4 / 7


def test_where_no_mention_has_three_the_mean_is_that_of_two():
    assert number_accuracy([2, 1], [2, 2]).multi == 1 / 2
    assert number_accuracy([1], [1]).multi is None


def test_table_8_follows_from_its_counts():
    # 2,851 mentions of one name, 116 of two, 27 of three, 6 of more: the only whole counts that
    # give what is printed for MTCG.
    right = {1: 2839, 2: 91, 3: 17}
    gold = [1] * 2851 + [2] * 116 + [3] * 27 + [4] * 6
    predicted = []
    for number, count in {1: 2851, 2: 116, 3: 27}.items():
        predicted += [number] * right[number] + [number % 3 + 1] * (count - right[number])
    found = number_accuracy(predicted + [3] * 6, gold)
    printed = next(row for row in MULTIPLE_NAMES if (row.table, row.encoder) == ("8", "MTCG"))
    assert {
        "number uni": round(100 * found.uni, 2),
        "number multi": round(100 * found.multi, 2),
        "number total": round(100 * found.total, 2),
    } == printed.scores


def test_the_printed_accuracies_are_whole_counts_of_the_test_set():
    of = {"uni": 2851, "multi": 149, "total": 3000}
    # The row without fusion is none: 90.85 % of 3,000 are no whole mentions.
    rows = [row for row in MULTIPLE_NAMES if row.encoder in ("recall and rank", "without KAR")]
    assert len(rows) == 2
    for row in rows:
        counts = {name: round(score * of[name] / 100) for name, score in row.scores.items()}
        for name, score in row.scores.items():
            digits = len(str(score).partition(".")[2])
            assert round(100 * counts[name] / of[name], digits) == score
        assert counts["uni"] + counts["multi"] == counts["total"]


def test_intervals_of_shares_are_those_of_their_mentions():
    """Half the width of 95 % is about two standard errors; none of nothing."""
    found = intervals_of_shares({"uni": Share(750, 1000), "multi": Share(0, 0), "all": Share(4, 4)})
    assert found.keys() == {"uni", "all"} and found["all"] == [1.0, 1.0]
    low, high = found["uni"]
    assert low < 0.75 < high
    assert (high - low) / 2 == pytest.approx(1.96 * (0.75 * 0.25 / 1000) ** 0.5, rel=0.1)
