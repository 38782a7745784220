"""Candidates and ranks: both orders, the gold, the answer, and what is not among them."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_mentions import tiny_mentions

from coder_jax.report import model_answers
from coder_jax.report.dictionary import gather_entries
from coder_jax.report.model_answers import (
    _MOST_MENTIONS,
    _MOST_OF_SEVERAL,
    _chosen_rows,
    candidate_answers,
    mentions_folder,
)
from coder_jax.systems.recall_rank.candidates import NameVectors, _EncodingGenerator
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.dataset.mentions import CandidateLists
from data_pipeline.process import BadInput
from data_pipeline.terminology.semantic_groups import ANY, GROUPS


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny_mentions(tmp_path_factory.mktemp("mentions"))


class Nearest(_EncodingGenerator):
    """Every mention is at 0, the names at 1, 2, ...; what means several means two."""

    def encode(self, strings, *, progress=False):
        return [np.zeros((len(strings), 1))]

    def encode_names(self, names, *, progress=False, cache=False):
        return [NameVectors(1.0 + np.arange(len(names))[:, None])]

    def numbers(self, mentions):
        return np.float32([[0.1, 0.7, 0.2] if "+" in one else [0.9, 0, 0.1] for one in mentions])


class Likes:
    """A ranker that is sure of one concept."""

    def __init__(self, *names):
        self.names = names

    outputs = 1

    def score_pairs(self, mentions, names, rows, *, progress=False):
        return np.float32([[0.9 if names[name] in self.names else 0.1] for _, name in rows])


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
    rows = _chosen_rows(train, 0)
    numbers = train.numbers()[rows]
    assert sorted(rows.tolist()) == list(range(7))
    assert (numbers[:2] > 1).all() and (numbers[2:] == 1).all()
    assert _chosen_rows(train, 1).tolist() != rows.tolist()
    again = dataclasses.replace(train.mentions, strings=[*["a"] * 3, "b", "c", "d", "e"])
    chosen = _chosen_rows(dataclasses.replace(train, mentions=again), 0)
    assert len(chosen) == 5
    many = dataclasses.replace(
        train,
        mentions=dataclasses.replace(train.mentions, strings=[str(n) for n in range(200)]),
        gold_start=np.concatenate([np.arange(101) * 2, 200 + np.arange(1, 101)]),
    )
    chosen = _chosen_rows(many, 0)
    assert len(chosen) == _MOST_MENTIONS and (chosen < 100).sum() == _MOST_OF_SEVERAL


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


# -------------------------------------------------------------------------------------------------
# Mentions answered by classes and by nearest terms: which are shown, with which names.

TERMS = ["infarctus", "heart attack", "coeur", "heart"]
CONCEPTS = ["C1", "C1", "C2", "C2"]
DISO, ANAT = GROUPS.index("DISO"), GROUPS.index("ANAT")
DICTIONARY = Dictionary(TERMS, CONCEPTS, "toy.tsv")


class Classifier:
    """C1 is a disorder, C2 an organ and a disorder; C9 has no name and no group."""

    concepts = ("C1", "C2", "C9")
    groups = np.uint16([1 << DISO | 1 << ANY, 1 << ANAT | 1 << DISO | 1 << ANY, 1 << ANY])

    def nearest(self, mentions, groups, k):
        assert k == 3
        self.asked = dict(zip(mentions, groups, strict=True))
        found = np.array([[1, 2, -1]] * len(mentions))
        return found, np.float32([[0.75, 0.25, 0]] * len(mentions))


class Encoder:
    """Every mention has the vector of the second term."""

    def encode(self, mentions):
        return np.float32([[0, 1, 0, 0]] * len(mentions))


def answered(path):
    classifier = Classifier()
    entries = gather_entries(DICTIONARY, ["C1", "C2"], {})
    vectors = np.eye(4, dtype=np.float32)
    found = model_answers.class_answers(
        classifier, DICTIONARY, Encoder(), entries, vectors, path, 0
    )
    return found, classifier


def test_the_gold_the_group_and_the_names(tmp_path):
    path = tmp_path / "mentions.tsv"
    path.write_text("crise cardiaque\tC1\nmuscle\tC7|C2\nmuscle\tC2\nrate\tC9\n")
    found, classifier = answered(path)
    assert classifier.asked == {"crise cardiaque": "DISO", "muscle": "ANAT", "rate": None}
    assert (found.total, found.classes, found.terms) == (3, 3, 4)
    rows = {row.mention: row for row in found.rows}
    assert rows["crise cardiaque"].gold == ["infarctus C1"]
    assert rows["muscle"].gold == ["C7", "coeur C2"] and rows["muscle"].group == "ANAT"
    by_classes = [
        (one.concept, one.name, one.score, one.right) for one in rows["muscle"].by_classes
    ]
    assert by_classes == [("C2", "coeur", 0.75, True), ("C9", "C9", 0.25, False)]
    first, *_ = rows["crise cardiaque"].by_terms
    assert (first.concept, first.name, first.score, first.right) == ("C1", "heart attack", 1, True)
    assert len(rows["muscle"].by_terms) == 3 and not rows["muscle"].by_terms[0].right
    assert found.right() == (1, 1)


def test_lines_without_concepts_are_answered_among_all(tmp_path):
    path = tmp_path / "mentions.txt"
    path.write_text("crise cardiaque\n\nmuscle\n")
    found, classifier = answered(path)
    assert classifier.asked == {"crise cardiaque": None, "muscle": None}
    assert found.right() is None and not any(row.gold or row.group for row in found.rows)


def test_some_of_many_by_a_seed(tmp_path):
    path = tmp_path / "mentions.tsv"
    path.write_text("".join(f"m{number}\tC1\n" for number in range(100)))
    some, total = model_answers._read_some(path, 0)
    assert total == 100 and len(some) == model_answers._MOST_CLASS_MENTIONS
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(reversed(lines)))
    assert model_answers._read_some(path, 0) == (some, 100), "whatever the order of the file"
    assert model_answers._read_some(path, 1)[0] != some


def test_the_file_given_or_that_of_the_dataset(tmp_path):
    find = model_answers.find_mentions
    assert find("given.tsv", DICTIONARY).name == "given.tsv"
    assert find(None, DICTIONARY) is None
    assert find(None, SimpleNamespace(dataset=tmp_path)) is None
    (tmp_path / "heldout").mkdir()
    (tmp_path / "heldout" / "mentions.tsv").write_text("x\tC1\n")
    assert find(None, SimpleNamespace(dataset=tmp_path)).parent.name == "heldout"
    with pytest.raises(BadInput, match=r"nothing\.tsv"):
        model_answers._read_some(tmp_path / "nothing.tsv", 0)
