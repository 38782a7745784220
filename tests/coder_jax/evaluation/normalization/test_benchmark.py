"""What every format of normalization shares: its record and its table."""

import pytest
from toy_record import RETIRED, record_of

from coder_jax.evaluation.normalization.mentions import Mentions
from coder_jax.evaluation.normalization.xl_bel import XlBel


def test_record_names_the_whole_protocol():
    record = record_of()
    assert record.counts == {
        **{"mentions": 4, "unreachable": 1, "tied": 0, "retired": 1},
        **{"quoted": 0, "missing": 0, "folds": 2},
    }
    assert record.dictionary["source"] == "toy.tsv"
    assert (record.dictionary["terms"], record.dictionary["concepts"]) == (2, 2)
    assert record.folds["two"]["counts"]["unreachable"] == 1
    assert record.unreachable["mentions"] == 1 and record.unreachable["share"] == 0.25
    two = record.folds["two"]
    assert two["unreachable"]["share"] == 0.5
    reachable = two["unreachable"]["scores_of_reachable"]
    assert reachable == pytest.approx({name: 2 * score for name, score in two["scores"].items()})
    assert record.dictionary["retired"] == 1
    assert record.scoring["retired_cuis"] == {
        "source": "MRCUI.RRF",
        "content_hash": RETIRED.content_hash,
    }
    assert record.folds["two"]["dictionary"] == record.dictionary
    assert record.scoring["tie_tolerance"] == 1e-6
    assert record.scoring["folds"] == "unweighted mean over folds"
    assert record.scoring["acc@k"] == "k concepts"
    of_xl_bel = record_of(made_of=XlBel)
    assert of_xl_bel.scoring["acc@k"].startswith("k concepts; SapBERT's evaluation")
    header, (row, *_) = Mentions.table([record], {"k": [1]})
    assert row.cells[header.index("folds")] == "2"
    assert {"python", "jax", "numpy"} <= record.versions.keys()
    assert record.date.endswith("+00:00")


def test_dictionary_hash_ignores_order_and_sees_a_changed_term():
    first = record_of().dictionary["content_hash"]
    assert record_of(("fever", "pain"), ("C2", "C1")).dictionary["content_hash"] == first
    assert record_of(("pain", "fever", "pain"), ("C1", "C2", "C1")).dictionary["terms"] == 2
    assert record_of(("pain", "Fever")).dictionary["content_hash"] != first
    assert record_of(("pain", "fever"), ("C2", "C1")).dictionary["content_hash"] != first
