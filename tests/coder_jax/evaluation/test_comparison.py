"""Two results compared: paired tests against naive ones, and files that cannot be compared."""

import dataclasses
import itertools

import numpy as np
import pytest
import scipy.stats
from evaluating import ENCODER

from coder_jax.evaluation.comparison import _HEADER, _difference, _p_by_flips, compare_files
from coder_jax.evaluation.ranks import GoldCounts
from coder_jax.evaluation.record import (
    Answers,
    EvaluationRecord,
    RatedPairs,
    Unreachable,
    write_records,
)
from coder_jax.evaluation.results import TOGETHER
from data_pipeline.files.identity import typed
from data_pipeline.process import BadInput


def record(ranks, name="mine", **more):
    answers = {
        "ranks": ranks,
        "order": "0" * 64,
        "cutoffs": {},
        "languages": "",
        "similarities": {"low": 0.0, "high": 1.0, "right": [], "wrong": []},
        "predictions": {},
    }
    fields = {
        "benchmark": name,
        "kind": "normalization",
        "path": "mine.tsv",
        "content_hash": "h",
        "scores": {"acc@1": 0.5, "acc@3": 0.5, "mrr": 0.5},
        "counts": {"mentions": 4},
        "scoring": {},
        "unreachable": Unreachable(mentions=0, share=0.0, scores_of_reachable={}),
        "answers": typed(answers, Answers, "answers"),
        "encoder": ENCODER,
    }
    return EvaluationRecord(**fields | more)


@pytest.fixture
def compared(tmp_path):
    def compare(a, b, seed=0):
        paths = [str(tmp_path / name) for name in ("a.json", "b.json")]
        for path, records in zip(paths, (a, b), strict=True):
            write_records(path, records if isinstance(records, list) else [records])
        return compare_files(*paths, seed=seed)

    return compare


def test_the_table(compared):
    header, rows = compared(record({"": "1 2 - 5"}), record({"": "1 1 4 1"}))
    assert header == _HEADER and len(rows) == 3
    cells = {row.cells[1]: row.cells for row in rows}
    assert list(cells) == ["acc@1", "acc@3", "MRR"]
    # Two won, none lost: by McNemar's exact test p = 2 / 2^2.
    assert cells["acc@1"][:6] == ["mine, cls", "acc@1", "4", "25.00", "75.00", "+50.00"]
    assert cells["acc@1"][6:] == ["+0.00 to +100.00", "0.500", "2", "0"]
    assert cells["acc@3"][3:6] == ["50.00", "75.00", "+25.00"]
    mean = (1 + 1 / 2 + 0 + 1 / 5) / 4
    assert cells["MRR"][3:5] == [f"{100 * mean:.2f}", f"{100 * 3.25 / 4:.2f}"]
    assert cells["MRR"][-2:] == ["3", "0"]


def test_a_result_beside_itself(compared):
    _, rows = compared(record({"": "1 2 -"}), record({"": "1 2 -"}))
    for row in rows:
        assert row.cells[5:] == ["+0.00", "+0.00 to +0.00", "1.000", "0", "0"]


def test_mcnemar_as_scipy_has_it():
    rng = np.random.default_rng(0)
    a, b = rng.random(200) < 0.6, rng.random(200) < 0.75
    same = [np.arange(200)]
    found = _difference("acc@1", [{"acc@1": a * 1.0}], [{"acc@1": b * 1.0}], same, 0)
    won, lost = int((b & ~a).sum()), int((a & ~b).sum())
    assert (found.won, found.lost, found.mentions) == (won, lost, 200)
    assert found.p == scipy.stats.binomtest(won, won + lost).pvalue
    assert (found.a, found.b) == pytest.approx((a.mean(), b.mean()))
    standard_error = np.std(b * 1.0 - a) / np.sqrt(200)
    middle, half = b.mean() - a.mean(), 1.96 * standard_error
    assert found.interval == pytest.approx([middle - half, middle + half], abs=0.012)


def test_a_thousandth_of_a_mention_is_not_a_mention():
    """An encoder for which all terms tie has a little of each mention, and is worse."""

    def against(right):
        some, none = np.repeat([1.0, 0.0], [right, 200 - right]), np.full(200, 1e-3)
        return _difference("acc@1", [{"acc@1": some}], [{"acc@1": none}], [np.arange(200)], 0)

    half = against(100)
    assert (half.won, half.lost) == (100, 100) and half.p < 1e-3 and half.a > half.b
    assert against(2).p > 0.3, "two mentions more, of 200"


def test_equal_mentions_have_one_answer(compared):
    """One name that is written 40 times is one thing that B does better, not 40."""
    often = ["=0"] * 39
    _, rows = compared(record({"": " ".join(["2", *often])}), record({"": " ".join(["1", *often])}))
    assert rows[0].cells[5:] == ["+100.00", "+100.00 to +100.00", "1.000", "40", "0"]
    _, rows = compared(record({"": " ".join(["2"] * 40)}), record({"": " ".join(["1"] * 40)}))
    assert rows[0].cells[7] == "< 0.001", "of earlier versions, or of forty names"


def test_rounding_is_no_difference():
    a, b = np.full(40, 0.3), np.full(40, 0.1 + 0.2)
    assert _difference("mrr", [{"mrr": a}], [{"mrr": b}], [np.arange(40)], 0).p == 1
    b[:20] = 1
    assert _difference("mrr", [{"mrr": a}], [{"mrr": b}], [np.arange(40)], 0).p < 1e-5


def test_a_record_of_an_earlier_version_beside_one_of_now(compared, capsys):
    """Which mentions are the same the newer one says; of two earlier ones nobody does."""
    now = {"scoring": {"intervals": f"drawn anew; {TOGETHER}"}}
    earlier = {"scoring": {"intervals": "mentions drawn anew within their fold"}}
    _, rows = compared(record({"": "2 2 2"}, **earlier), record({"": "1 =0 =0"}, **now))
    assert rows[0].cells[7] == "1.000" and not capsys.readouterr().err
    _, rows = compared(record({"": "2 2 2"}, **earlier), record({"": "1 1 1"}, **earlier))
    assert rows[0].cells[7] == "0.250"
    assert "are of an earlier version, which does not say which" in capsys.readouterr().err


def test_p_is_of_the_difference_that_is_shown():
    """Folds weigh alike: B is better by the mean over folds, though worse on more mentions."""
    few, many = np.zeros(100), np.zeros(1_000)
    a = [{"acc@1": few}, {"acc@1": np.where(np.arange(1_000) < 40, 1.0, many)}]
    b = [{"acc@1": np.where(np.arange(100) < 10, 1.0, few)}, {"acc@1": many}]
    found = _difference("acc@1", a, b, [np.arange(100), np.arange(1_000)], 0)
    assert (found.won, found.lost) == (10, 40) and found.b > found.a
    assert scipy.stats.binomtest(10, 50).pvalue < 1e-4 < 0.03 < found.p, "that of the mentions"


def test_permutations_as_all_of_them():
    changes = np.array([0.5, -0.25, 0.5, 0.8, 0.0, 0.25, 0.1])
    signs = np.array(list(itertools.product([-1, 1], repeat=len(changes))))
    exact = np.mean(np.abs(signs @ changes) >= changes.sum() - 1e-9)
    assert _p_by_flips(changes, np.random.default_rng(0)) == pytest.approx(exact, abs=0.012)
    assert _p_by_flips(np.zeros(5), np.random.default_rng(0)) == 1
    assert _p_by_flips(np.full(40, 0.1), np.random.default_rng(0)) < 0.001


def test_folds_weigh_alike(compared):
    """The difference is the mean over folds: one mention of two, none of four."""
    _, rows = compared(
        record({"one": "2 2", "two": "1 1 1 1"}), record({"one": "1 2", "two": "1 1 1 1"})
    )
    assert rows[0].cells[2:6] == ["6", "50.00", "75.00", "+25.00"]


def test_poolings_are_paired_by_name_where_there_are_several(compared, capsys):
    mean = dataclasses.replace(ENCODER, pooling="mean")
    both = [record({"": "1 2"}), record({"": "2 2"}, encoder=mean)]
    _, rows = compared(both, [both[1]])
    assert {row.cells[0] for row in rows} == {"mine, mean"}
    assert "left out" in capsys.readouterr().err
    _, rows = compared([both[0]], [both[1]])
    assert {row.cells[0] for row in rows} == {"mine, cls and mean"}


def test_mantra(compared):
    folds = {"Medline fr": {"counts": {"annotations": 3}, "scores": {}}}
    kind = {"kind": "MANTRA GSC", "folds": folds, "scores": {"precision": 0.5, "f1": 0.4}}
    _, rows = compared(record({"Medline fr": "1 2"}, **kind), record({"Medline fr": "1 1"}, **kind))
    assert [row.cells[1:6] for row in rows] == [
        ["precision", "2", "50.00", "100.00", "+50.00"],
        ["f1", "2", "40.00", "80.00", "+40.00"],
    ]


def test_other_dictionaries_are_told(compared, capsys):
    held = {"source": "d", "terms": 1, "concepts": 1, "retired": 0}
    a, b = (record({"": "1"}, dictionary={**held, "content_hash": c * 64}) for c in "ab")
    compared(a, b)
    assert "A and B searched different dictionaries" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("b", "message"),
    [
        (
            record({"": "1 2"}, content_hash="i", path="p", counts={"mentions": 9}),
            "'mine' is 4 mentions of mine.tsv in .*a.json and 9 mentions of p in .*b.json, and",
        ),
        (record({"": "1 2"}, "other", content_hash="i"), "a.json has mine .normalization.; .* has"),
        (record({"": "1 2"}, answers=None), "found no mentions that both have"),
        (record({"": "1 2 3"}), "the same mentions in .*a.json and in .*b.json, in another order"),
        (record(None), "b.json has no ranks of the mentions of mine"),
        (record({"": "1 x"}), "b.json: mine: ranks: found 'x'; expected a place"),
        (record({"": ""}), "ranks: found no place"),
    ],
)
def test_what_cannot_be_compared(compared, b, message):
    with pytest.raises(BadInput, match=message):
        compared(record({"": "1 2"}), b)


def test_mentions_in_another_order(compared):
    a = record({"": "1 2"})
    b = dataclasses.replace(a, answers=dataclasses.replace(a.answers, order="1" * 64))
    with pytest.raises(BadInput, match="in another order; expected one order"):
        compared(a, b)


def rated(cosines, ratings, **more):
    """A record of pairs, as `evaluate` writes it."""
    rho = float(scipy.stats.spearmanr(cosines, ratings).statistic)
    fields = {
        **{"kind": "similarity", "scores": {"spearman": rho}, "answers": None},
        **{"counts": {"pairs": len(cosines)}, "unreachable": None},
        "pairs": RatedPairs(
            cosines=[float(one) for one in cosines],
            ratings={"spearman": [float(one) for one in ratings]},
        ),
    }
    return record(None, "umnsrs", **fields | more)


def test_rated_pairs(compared):
    """By hand: A has the order 1 2 3 5 4, B that of the people, 1 2 3 4 5."""
    header, rows = compared(
        rated([0.1, 0.2, 0.3, 0.5, 0.4], [1, 2, 3, 4, 5.5]),
        rated([0.1, 0.2, 0.3, 0.4, 0.9], [1, 2, 3, 4, 5.5]),
    )
    ((label, score, pairs, a, b, change, interval, p, won, lost),) = [row.cells for row in rows]
    assert (label, score, pairs) == ("umnsrs, cls", "spearman", "5")
    assert (a, b, change) == ("0.9000", "1.0000", "+0.1000"), "1 - 6 * 2 / (5 * 24)"
    assert interval.startswith("+0.0000 to +") and (won, lost) == ("2", "0")
    # Of the four ways to exchange the two pairs that differ, two give a difference of 0.1 and two
    # exchange one place alone: 1 2 3 4 4 and 1 2 3 5 5, both with a rho of 0.9747.
    assert float(p) == pytest.approx(0.5, abs=0.02)


def test_rated_pairs_of_two_that_differ_much(compared):
    rng = np.random.default_rng(0)
    people = rng.permutation(100) * 1.0
    near = people / 200 + rng.normal(size=100) * 0.05
    _, rows = compared(rated(rng.random(100), people), rated(np.clip(near, -1, 1), people))
    low, high = (float(end) for end in rows[0].cells[6].split(" to "))
    change = float(rows[0].cells[5])
    assert rows[0].cells[7] == "< 0.001" and 0.5 < low < change < high < 1.3
    _, rows = compared(rated(near.clip(-1, 1), people), rated(near.clip(-1, 1), people))
    assert rows[0].cells[5:] == ["+0.0000", "+0.0000 to +0.0000", "1.000", "0", "0"]


def test_pairs_in_another_order_and_records_that_keep_none(compared, capsys):
    a, b = rated([0.1, 0.2, 0.4], [1, 2, 3]), rated([0.2, 0.1, 0.4], [2, 1, 3])
    with pytest.raises(BadInput, match="umnsrs has the same pairs .* in another order; expected"):
        compared(a, b)
    old = dataclasses.replace(a, pairs=None)
    _, rows = compared([record({"": "1 2"}), old], [record({"": "1 1"}), old])
    assert {row.cells[0] for row in rows} == {"mine, cls"}
    told = capsys.readouterr().err
    assert "a.json keeps no answers to them one by one: umnsrs (similarity)" in told
    assert "b.json keeps no answers" in told


def test_places_as_text():
    text = "1 3 3+2 3+2/4 1+0/2 - =3"
    counts, same = GoldCounts.from_text(text)
    assert same.tolist() == [0, 1, 2, 3, 4, 5, 3] and counts.ahead[6] == 2
    counts, same = counts.of(slice(6)), same[:6]
    text = text[:-3]
    assert counts.ahead.tolist()[:5] == [0, 2, 2, 2, 0]
    assert counts.tied.tolist() == [0, 0, 2, 2, 0, 0]
    assert counts.gold_tied.tolist() == [1, 1, 1, 4, 2, 1]
    assert counts.reachable.tolist() == [True] * 5 + [False]
    assert counts.as_text(same) == text
    assert counts.as_text(np.array([0, 1, 2, 3, 4, 4])) == text[:-1] + "=4"
    for broken in ("0", "1+", "1/2", "1,2", "9" * 30, "=0", "1 =1", "1 =-1"):
        with pytest.raises(ValueError, match="expected a place"):
            GoldCounts.from_text(broken)
