"""Tables of records of several kinds, with the papers' rows below ours."""

import dataclasses

from coder_jax.evaluation import benchmarks
from coder_jax.evaluation.record import EvaluationRecord, VectorFileProtocol
from coder_jax.evaluation.results.cells import Row
from coder_jax.evaluation.results.tables import print_records, print_table, tables_of
from coder_jax.evaluation.similarity.term_pairs import SimilarityBenchmark

ENCODER = VectorFileProtocol(
    **{"model": "w.bin", "weights_hash": "1f", "keyed_by": "words", "pooling": "mean of words"},
    **{"width": 3, "vectors": 9, "used": 4, "look_up": "as they stand"},
)


def test_published_rows_stand_below_ours_and_are_marked(capsys):
    folds = {"Medline fr": {"scores": {"f1": 0.5}}}
    record = EvaluationRecord(
        **{"benchmark": "mantra", "kind": "MANTRA GSC", "path": "p", "content_hash": "h"},
        **{"scores": {"precision": 0.6, "recall": 0.4, "f1": 0.48}, "unreachable": None},
        **{"counts": {"mentions": 5, "annotations": 7, "unreachable": 1}, "dictionary": None},
        **{"scoring": {}, "folds": folds, "encoder": ENCODER},
    )
    concepts = dataclasses.replace(
        record,
        benchmark="mcsm",
        kind="concept similarity",
        counts={"concepts": 9, "missing": 2},
        folds={"Finding": {"scores": {"mcsm": 3.14, "chance": 1.0}}},
    )
    relations = dataclasses.replace(
        record,
        benchmark="ddbrc",
        kind="relation classification",
        scores={"accuracy": 0.9, "macro_f1": 0.8, "most_frequent": 0.1},
        counts={"train": 4, "test": 2, "labels": 2, "unseen": 0, "missing": 0, "unnamed": 0},
        scoring={"features": "fine-tuned"},
    )
    print_records([relations, concepts, record], k=[1])
    blocks = [block.splitlines() for block in capsys.readouterr().out.split("\n\n")]
    assert [block[0].split()[0] for block in blocks] == ["MANTRA", "MCSM", "relation"]
    mantra, mcsm, ddbrc = blocks
    assert mantra[2].split()[-4:] == ["50.0", "60.0", "40.0", "48.0"]
    assert any(
        "CODER_ALL (published, CODER, table 2)" in line and "58.9" in line for line in mantra
    )
    assert "3.1" in mcsm[2] and "by chance" in mcsm[3] and mcsm[3].endswith("1.0")
    assert any(line.startswith("mcsm: cui2vec (published, CODER, table 3)") for line in mcsm)
    assert ddbrc[2].split()[-3:] == ["90.00", "80.00", "10.00"]
    sap = next(line for line in ddbrc if "SapBERT (published" in line)
    assert sap.split()[-2:] == ["91.80", "98.79"]


def test_columns_are_as_wide_as_their_longest_cell(capsys):
    rows = [Row(["a", "cls", "1,234", "5"], "m"), Row(["bcd", "", "6", ""], "X", "P, table 2")]
    print_table(["name", "pooling", "n", "score"], rows)
    assert capsys.readouterr().out == (
        "name                            pooling      n  score\n"
        "------------------------------  -------  -----  -----\n"
        "a                               cls      1,234      5\n"
        "bcd: X (published, P, table 2)               6\n"
    )


def test_classes_of_one_kind_share_a_table_and_unknown_kinds_have_none(monkeypatch):
    class Other(SimilarityBenchmark):
        @classmethod
        def table(cls, records, options):
            raise AssertionError("the first class of a kind makes its table")

    monkeypatch.setattr(benchmarks, "BENCHMARKS", (SimilarityBenchmark, Other))
    record = EvaluationRecord(
        **{"benchmark": "sim", "kind": "similarity", "path": "p", "content_hash": "h"},
        **{"scores": {"spearman": 0.5}, "counts": {"pairs": 3, "missing": 0}, "scoring": {}},
        encoder=ENCODER,
    )
    ((header, rows),) = tables_of([record, dataclasses.replace(record, kind="of a later version")])
    assert header[0] == "similarity" and len(rows) == 1
    assert rows[0].cells == ["sim", "mean of words", "3", "0", "0.5000"]
