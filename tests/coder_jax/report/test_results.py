"""Results in a report: records read back, tables beside the papers' rows."""

import dataclasses

import pytest
from evaluating import ENCODER

from coder_jax.evaluation.record import EvaluationRecord, read_records, write_records
from coder_jax.evaluation.tables import print_records
from coder_jax.report.results import read_results, result_tables
from data_pipeline.process.errors import BadInput


def normalization(name, ks=(1, 3)):
    scores = {f"acc@{k}": 0.5 for k in ks} | {"mrr": 0.6}
    scores |= {f"acc@{ks[0]}_{end}": 0.5 for end in ("pessimistic", "optimistic")}
    return EvaluationRecord(
        benchmark=name,
        kind="normalization",
        path="p",
        content_hash="h",
        scores=scores,
        counts={"mentions": 4, "unreachable": 0, "tied": 0},
        unreachable={"mentions": 0, "share": 0.0, "scores_of_reachable": {}},
        dictionary={
            "source": "d.tsv",
            "content_hash": "0" * 64,
            "terms": 9,
            "concepts": 5,
            "retired": 0,
        },
        scoring={},
        folds={},
        encoder=dataclasses.replace(ENCODER, model="some/model", pooling="mean"),
    )


def test_tables_have_the_papers_rows_marked(tmp_path, capsys):
    write_records(tmp_path / "a.json", [normalization("cadec"), normalization("own")])
    write_records(tmp_path / "b.json", [normalization("cadec", (1, 5))])
    records = read_results([("ours", str(tmp_path / "a.json")), (None, str(tmp_path / "b.json"))])
    (cadec_header, cadec), (_, own) = result_tables(records)
    assert cadec_header[5:7] == ["acc@1", "MRR"], "only the k that all have"
    assert [row.encoder for row in cadec if not row.published] == ["ours", "some/model"]
    published = {(row.encoder, row.published): row.cells for row in cadec if row.published}
    assert published["CODER_ENG", "CODER, table 1"][5] == "59.77"
    assert [(row.cells[0], row.encoder, row.published) for row in own] == [("own", "ours", "")]
    assert result_tables([]) == []
    print_records(records, k=[1])
    printed = capsys.readouterr().out
    assert "cadec: CODER_ENG (published, CODER, table 1)" in printed


def mantra(name):
    scores = {"precision": 0.6, "recall": 0.4, "f1": 0.48}
    counts = {"mentions": 5, "annotations": 7, "unreachable": 1}
    folds = {"Medline fr": {"scores": scores}}
    kind = {"kind": "MANTRA GSC", "scores": scores, "counts": counts, "folds": folds}
    return dataclasses.replace(normalization(name), **kind)


def links(name):
    scores = dict.fromkeys(("mrr", "hits@1", "hits@10"), 0.5)
    scores |= {f"{score}_cosine": 0.25 for score in scores}
    counts = {"triplets": 4, "relations": 2, "concepts": 5, "without_relation": 0}
    kind = {"kind": "link prediction", "scores": scores, "counts": counts}
    return dataclasses.replace(normalization(name), **kind)


@pytest.mark.parametrize("make", [normalization, mantra, links])
def test_what_has_no_vector_is_shown_where_there_is_any(make):
    """Beside a record of before it was counted; the rest of the table stays as it is."""
    old = make("mantra")  # published rows, too, of one of the kinds
    none, some = (
        dataclasses.replace(old, counts=old.counts | {"missing": missing}) for missing in (0, 1234)
    )
    ((header, rows),) = result_tables([some, old])
    column = header.index("missing")
    assert list(filter(None, (row.cells.pop(column) for row in rows))) == ["1,234", "0"]
    header.remove("missing")
    assert [(header, rows)] == result_tables([none, old])


def test_records_come_back_as_they_were_written(tmp_path):
    record = normalization("x")
    write_records(tmp_path / "a.json", [record])
    assert read_records(tmp_path / "a.json") == [record]


@pytest.mark.parametrize(
    "content, message",
    [
        ('{"before": 1}', "has the format None, expected 'coder_jax evaluation 2': .*evaluate"),
        (
            '{"format": "coder_jax evaluation 2", "records": [{}]}',
            r"r.json: records\[0\]: counts is missing; make it again",
        ),
        ("[", "is not JSON"),
    ],
)
def test_other_files_are_no_results(tmp_path, content, message):
    (tmp_path / "r.json").write_text(content)
    with pytest.raises(BadInput, match=message):
        read_results([(None, str(tmp_path / "r.json"))])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "poems"}, r"a.json: records\[0\] is of the kind 'poems', which this version"),
        ({"counts": {"mentions": 4}}, "is not whole .KeyError: 'unreachable'.; make the file"),
        ({"acc@1": None}, "acc@1 is None, from 0.5 to 0.5 by how ties are counted; expected num"),
        ({"acc@1": 0.4}, "acc@1 is 0.4, from 0.5 to 0.5 by how ties are counted"),
        ({"acc@1_optimistic": 7.0}, "acc@1 is 0.5, from 0.5 to 7.0 by how ties are counted"),
    ],
)
def test_records_of_which_no_table_can_be_made(tmp_path, change, message):
    record = normalization("own")
    scores = {**record.scores, **{name: change[name] for name in change if "@" in name}}
    others = {name: value for name, value in change.items() if "@" not in name}
    write_records(tmp_path / "a.json", [dataclasses.replace(record, scores=scores, **others)])
    with pytest.raises(BadInput, match=message):
        read_results([(None, str(tmp_path / "a.json"))])


def test_files_that_share_no_k():
    with pytest.raises(BadInput, match=r"x of .* k of \[1\]; y of .* k of \[5\]; expected one k"):
        result_tables([normalization("x", ks=(1,)), normalization("y", ks=(5,))])
    tables = result_tables([normalization("cadec", ks=(1, 5)), normalization("y", ks=(5,))])
    assert [header[5:7] for header, _ in tables] == [["acc@1", "acc@5"], ["acc@5", "MRR"]]
