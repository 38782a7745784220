"""The majority CUI of training mentions: by hand, and the figures of the real corpus."""

import pytest

from coder_jax.evaluation.given_groups.counts import count_items, measures
from coder_jax.evaluation.given_groups.majority import majority_answers, majority_cuis
from coder_jax.evaluation.given_groups.mention_sets import mention_sets
from data_pipeline.sources.corpora.quaero import read_quaero


def test_most_frequent_of_group_and_string():
    groups = ["DISO", "DISO", "DISO", "ANAT", "DISO"]
    texts = ["Œdème", "oedeme", "oedème", "œdème", "mal"]
    gold = [("C1",), ("C2",), ("C2", "C3"), ("C4",), ("C9", "C8")]
    known = majority_cuis(groups, texts, gold)
    asked = ["DISO", "ANAT", "PROC", "DISO", "DISO"]
    found = majority_answers(known, asked, ["OEDEME", "œdème", "œdème", "MAL", "mal de tête"])
    assert found == ["C2", "C4", None, "C9", None]
    assert majority_cuis([], [], []) == {}


# Precision, recall and F1 in percent; others who measured it got the same to .1 or .2.
FLOOR = {
    "EMEA 2015": (92.4, 44.3, 59.9),
    "MEDLINE 2015": (84.5, 33.4, 47.9),
    "EMEA 2016": (91.0, 51.2, 65.5),
    "MEDLINE 2016": (85.6, 42.3, 56.6),
}


def test_floor_of_the_real_corpus(shared_data):
    packed = shared_data / "benchmarks" / "quaero" / "QUAERO_FrenchMed.tar.gz"
    for one in mention_sets(read_quaero(packed), "quaero", (), {}):
        found = measures(count_items(one.gold, one.majority).sum(axis=0))
        assert 100 * found == pytest.approx(FLOOR[one.name], abs=0.06), one.name
