"""Cut-offs: the table of precision and coverage, the choice, and cutoffs.json."""

import json

import numpy as np
import pytest

from coder_jax.mapping.cutoffs import (
    ALL,
    LEAST_ANSWERED,
    MOST_ROWS,
    Cutoffs,
    CutoffTable,
    cutoff_for,
    measure_cutoffs,
    precision_and_coverage,
)
from data_pipeline.process.errors import BadInput


def test_by_hand():
    table = precision_and_coverage(
        np.array([0.9, 0.7, 0.9, 0.5, -np.inf]), np.array([True, False, True, True, True])
    )
    assert table == CutoffTable(5, [0.5, 0.7, 0.9], [4, 3, 2], [3, 2, 2])
    assert table.rows == [(0.5, 0.75, 0.8, 4), (0.7, 2 / 3, 0.6, 3), (0.9, 1, 0.4, 2)]


def test_equal_but_for_rounding_stay_together():
    similarities = np.array([0.9999999, 1.0000001, 0.8, 0.79999995, 0.123456], np.float32)
    table = precision_and_coverage(similarities, np.array([True, True, False, True, False]))
    assert table == CutoffTable(5, [0.1234, 0.8, 1.0], [5, 4, 2], [3, 3, 2])
    assert [int((similarities >= cutoff - 1e-6).sum()) for cutoff in table.cutoffs] == [5, 4, 2]
    assert precision_and_coverage(similarities[3:4], np.array([True])).cutoffs == [0.8]


def test_no_mention_has_an_answer():
    table = precision_and_coverage(np.array([-np.inf, -np.inf]), np.array([False, False]))
    assert table.rows == [] and cutoff_for(table, 0.5, least_answered=1) is None


@pytest.mark.parametrize("similarities", [[0.5, np.nan], [0.5, np.inf], [0.5], []])
def test_what_cannot_be_measured(similarities):
    with pytest.raises(ValueError, match="expected"):
        precision_and_coverage(np.array(similarities), np.ones(len(similarities[:1]) * 2, bool))


def test_of_many_mentions_agrees_with_counting():
    rng = np.random.default_rng(0)
    similarities = rng.beta(8, 2, 5_000).astype(np.float32)
    right = rng.random(5_000) < similarities
    table = precision_and_coverage(similarities, right)
    assert MOST_ROWS / 2 < len(table.rows) <= MOST_ROWS
    assert table.answered[0] == 5_000 and table.cutoffs[-1] == pytest.approx(
        similarities.max(), abs=1e-4
    )
    for cutoff, precision, coverage, answered in table.rows:
        given = [right[i] for i in range(5_000) if similarities[i] >= cutoff - 1e-6]
        assert (len(given), sum(given) / len(given)) == (answered, pytest.approx(precision))
        assert coverage == len(given) / 5_000
    steps = -np.diff(table.answered)
    assert steps.max() < 3 * 5_000 / MOST_ROWS, "rows split the answered mentions evenly"


TABLE = CutoffTable(
    1_000, [0.2, 0.4, 0.6, 0.8, 0.9], [1_000, 400, 200, 100, 10], [700, 370, 170, 95, 5]
)


def test_the_precision_stays_from_the_cutoff_on():
    # At 0.4 it is .925, but at 0.6 only .85; at 0.9 too few answers say anything.
    assert cutoff_for(TABLE, 0.9) == 0.8
    assert cutoff_for(TABLE, 0.85) == 0.4
    assert cutoff_for(TABLE, 0.7) == 0.2
    assert cutoff_for(TABLE, 0.96) is None
    assert cutoff_for(TABLE, 0.85, least_answered=10) is None
    assert cutoff_for(TABLE, 0.85, least_answered=101) == 0.4
    assert LEAST_ANSWERED == 30


def test_with_confidence():
    # Of 95 of 100 right, the lower bound at 95 % is .8977; of 370 of 400 it is .8998.
    assert cutoff_for(TABLE, 0.897, confidence=0.95) == 0.8
    assert cutoff_for(TABLE, 0.898, confidence=0.95) is None
    nothing_right = CutoffTable(50, [0.5], [50], [0])
    assert cutoff_for(nothing_right, 0.01, confidence=0.95) is None
    assert cutoff_for(nothing_right, 0.0, confidence=0.95) == 0.5


@pytest.mark.parametrize("wrong", [{"precision": 90}, {"precision": 0.9, "confidence": 95}])
def test_percent_is_refused(wrong):
    with pytest.raises(ValueError, match="expected shares"):
        cutoff_for(TABLE, **wrong)


def test_a_promise_is_kept_by_others():
    """The cut-off of one half of the mentions has the precision on the other half."""
    rng = np.random.default_rng(1)
    similarities = rng.uniform(0.4, 1, 200_000)
    right = rng.random(200_000) < similarities**2
    cutoff = cutoff_for(precision_and_coverage(similarities[::2], right[::2]), 0.8)
    given = similarities[1::2] >= cutoff
    precision = right[1::2][given].mean()
    # Of a difference of two shares; rows lie .001 of precision apart.
    standard_error = np.sqrt(2 * 0.8 * 0.2 / given.sum())
    assert abs(precision - 0.8) < 2 * standard_error + 0.001


@pytest.fixture
def measured():
    similarities = np.array([0.9, 0.8, 0.7, 0.6])
    right, languages = np.array([True, True, False, True]), np.array(["FRE", "GER", "GER", ""])
    return measure_cutoffs(similarities, right, languages, {"benchmark": "mine"})


def test_by_language_and_again_from_its_file(measured, tmp_path):
    assert list(measured.tables) == [ALL, "FRE", "GER"]
    assert measured.of("GER") == CutoffTable(2, [0.7, 0.8], [2, 1], [1, 1])
    assert measured.of("SPA") == measured.of() == measured.tables[ALL]
    measured.write(tmp_path / "cutoffs.json")
    assert Cutoffs.read(tmp_path / "cutoffs.json") == measured


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("tables",), [], "tables is an empty list; expected object"),
        (("tables", "GER", "cutoffs"), ["high", 0.8], "expected float"),
        (("tables", "GER", "cutoffs"), [0.7, 8], "expected float <= 1.001"),
        (("tables", "GER", "cutoffs"), [0.8, 0.7], "tables.GER: found columns that do not fit"),
        (("tables", "GER", "cutoffs"), [0.7], "tables.GER: found columns that do not fit"),
        (("tables", "GER", "answered"), [1, 1], "tables.GER: found columns that do not fit"),
        (("tables", "GER", "answered"), [3, 1], "tables.GER: found columns that do not fit"),
        (("tables", "GER", "answered"), [1, 0], "tables.GER: found columns that do not fit"),
        (("tables", "GER", "right"), [1, 2], "tables.GER: found columns that do not fit"),
        (("tables", "GER", "right"), [2, 0], "tables.GER: found columns that do not fit"),
        (("tables", "GER", "right"), [2, 1], None),
        (("tables", "GER", "right"), [0, 1], "tables.GER: found columns that do not fit"),
        (("tables", "GER", "mentions"), 0, "expected int >= 1"),
        (("tables", ALL), None, "expected object"),
        (("measured_on",), {"dictionary": "hpo"}, 'dictionary is "hpo"; expected object'),
        (("measured_on",), {"dictionary": {"source": "hpo", "terms": 0}}, "expected int >= 1"),
        (("format",), "coder_jax run 3", "python -m coder_jax train"),
    ],
)
def test_broken_files(measured, tmp_path, place, value, message):
    path = tmp_path / "cutoffs.json"
    measured.write(path)
    content = json.loads(path.read_text())
    *outer, last = place
    target = content
    for key in outer:
        target = target[key]
    target[last] = value
    path.write_text(json.dumps(content))
    if message is None:
        assert Cutoffs.read(path).of("GER").right == value
        return
    with pytest.raises(BadInput, match=message):
        Cutoffs.read(path)


def test_a_file_without_the_table_of_all(measured, tmp_path):
    path = tmp_path / "cutoffs.json"
    Cutoffs({"GER": measured.of("GER")}).write(path)
    with pytest.raises(BadInput, match="found no table 'all'; make it again"):
        Cutoffs.read(path)
