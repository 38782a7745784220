"""Mentions answered by classes and by nearest terms: which are shown, with which names."""

from types import SimpleNamespace

import numpy as np
import pytest

from coder_jax.report.dictionary import class_answers
from coder_jax.report.dictionary.neighbours import gather_entries
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.semantic_groups import ANY, GROUPS

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
    found = class_answers.class_answers(
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
    some, total = class_answers.read_some(path, 0)
    assert total == 100 and len(some) == class_answers.MOST_MENTIONS
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(reversed(lines)))
    assert class_answers.read_some(path, 0) == (some, 100), "whatever the order of the file"
    assert class_answers.read_some(path, 1)[0] != some


def test_the_file_given_or_that_of_the_dataset(tmp_path):
    find = class_answers.find_mentions
    assert find("given.tsv", DICTIONARY).name == "given.tsv"
    assert find(None, DICTIONARY) is None
    assert find(None, SimpleNamespace(dataset=tmp_path)) is None
    (tmp_path / "heldout").mkdir()
    (tmp_path / "heldout" / "mentions.tsv").write_text("x\tC1\n")
    assert find(None, SimpleNamespace(dataset=tmp_path)).parent.name == "heldout"
    with pytest.raises(BadInput, match=r"nothing\.tsv"):
        class_answers.read_some(tmp_path / "nothing.tsv", 0)
