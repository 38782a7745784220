"""Candidates and ranks: both orders, the gold, the answer, and what is not among them."""

import dataclasses

import numpy as np
import pytest
from tiny_mentions import tiny_mentions

from coder_jax.report.dictionary.candidate_answers import (
    MOST_MENTIONS,
    MOST_OF_SEVERAL,
    candidate_answers,
    chosen_rows,
    mentions_folder,
)
from coder_jax.systems.recall_rank.prediction.candidates import Generator
from data_pipeline.dataset.mentions.candidates import CandidateLists
from data_pipeline.process.errors import BadInput


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny_mentions(tmp_path_factory.mktemp("mentions"))


class Nearest(Generator):
    """Every mention is at 0, the names at 1, 2, ...; what means several means two."""

    def encode(self, strings, *, progress=False):
        return [np.zeros((len(strings), 1))]

    def encode_names(self, names, *, progress=False, cache=False):
        return [1.0 + np.arange(len(names))[:, None]]

    def numbers(self, mentions):
        return np.float32([[0.1, 0.7, 0.2] if "+" in one else [0.9, 0, 0.1] for one in mentions])


class Likes:
    """A ranker that is sure of one concept."""

    def __init__(self, *names):
        self.names = names

    def score_pairs(self, mentions, names, rows, *, progress=False):
        return np.float32([0.9 if names[name] in self.names else 0.1 for _, name in rows])


def test_both_orders_and_what_is_the_answer(data):
    strings = list(data.names.strings)
    assert strings[0] == "heart disease"
    found = candidate_answers(data.folder, 0, Nearest(), [Likes("renal disease")])
    assert (found.split, found.total, found.rankers) == ("dev", 2, 1)
    assert (found.concepts, found.names) == (len(data.concepts), len(strings))
    both, renal = found.rows  # of several concepts first
    assert both.mention == "heart + renal disease" and renal.mention == "renal"
    assert (both.number, both.or_more, renal.number) == (2, False, 1)
    assert both.probability == pytest.approx(0.7)
    assert both.gold == ["heart disease", "renal disease"] and both.missing == 0
    assert [one.name for one in both.by_distance] == strings[:10]
    assert [one.distance for one in both.by_distance] == list(range(1, 11))
    place = strings.index("renal disease")
    expected = [place, *(row for row in range(10) if row != place)]
    assert [one.name for one in both.by_score] == [strings[row] for row in expected]
    first, second, third = both.by_score[:3]
    assert first.probability == pytest.approx(0.9) and first.distance == place + 1
    assert first.score == pytest.approx((1 - (place + 1) / 55 + 0.9) / 2)
    assert [one.right for one in (first, second, third)] == [True, True, False]
    assert [one.answer for one in (first, second, third)] == [True, True, False]
    assert sum(one.right for one in renal.by_score) == 1 and renal.by_score[0].answer
    assert not any(one.concept for one in both.by_score), "gold is written as names here"
    assert found.right == (0, 2)  # without the ranker the second of two is another one


def test_stored_candidates_and_gold_that_is_not_among_them(data, tmp_path):
    gold = data.splits["dev"].gold_sets()
    wrong = [row for row in range(6) if row not in gold[0] | gold[1]][:2]
    lists = CandidateLists(
        names=np.int32([wrong, wrong]),
        distances=np.float32([[0, 0], [1, 2]]),
        numbers=np.float32([[0.2, 0.3, 0.5]] * 2),
    )
    lists.write(data.folder, "dev")
    found = candidate_answers(data.folder, 0, None, [])
    several, single = found.rows
    assert (several.missing, single.missing) == (2, 1)
    assert several.or_more and several.number == 3
    assert all(one.probability is None for one in several.by_score)
    assert [one.score for one in several.by_distance] == pytest.approx([2 / 3, 1 / 3])
    assert all(one.answer for one in several.by_distance), "three are said, there are two"
    assert found.right == (0, 0) and found.rankers == 0


def test_mentions_of_several_concepts_come_first_and_no_string_twice(data):
    train = data.splits["train"]
    rows = chosen_rows(train, 0)
    numbers = train.numbers()[rows]
    assert sorted(rows.tolist()) == list(range(7))
    assert (numbers[:2] > 1).all() and (numbers[2:] == 1).all()
    assert chosen_rows(train, 1).tolist() != rows.tolist()
    again = dataclasses.replace(train.mentions, strings=[*["a"] * 3, "b", "c", "d", "e"])
    chosen = chosen_rows(dataclasses.replace(train, mentions=again), 0)
    assert len(chosen) == 5
    many = dataclasses.replace(
        train,
        mentions=dataclasses.replace(train.mentions, strings=[str(n) for n in range(200)]),
        gold_start=np.concatenate([np.arange(101) * 2, 200 + np.arange(1, 101)]),
    )
    chosen = chosen_rows(many, 0)
    assert len(chosen) == MOST_MENTIONS and (chosen < 100).sum() == MOST_OF_SEVERAL


def test_a_folder_of_mentions_is_told_from_a_file(data, tmp_path):
    (tmp_path / "mentions.tsv").write_text("x\tC1\n")
    assert mentions_folder(str(data.folder)) == data.folder
    assert mentions_folder(None) is None
    assert mentions_folder(str(tmp_path / "mentions.tsv")) is None
    assert mentions_folder(str(tmp_path)) is None


def test_a_ranker_without_candidates_is_told_how_to_have_them(tmp_path):
    made = tiny_mentions(tmp_path)
    with pytest.raises(BadInput, match="has no candidates of its mentions of dev; expected what"):
        candidate_answers(made.folder, 0, None, [])
