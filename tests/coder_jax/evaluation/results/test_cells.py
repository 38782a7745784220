"""Cells of tables: how numbers are printed, columns that come and go, rows of papers."""

import dataclasses

from evaluating import ENCODER

from coder_jax.evaluation.record import EvaluationRecord
from coder_jax.evaluation.results.cells import (
    missing_column,
    one_decimal,
    percent,
    published_rows,
    short_percent,
)
from coder_jax.evaluation.results.published import PublishedRow

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
