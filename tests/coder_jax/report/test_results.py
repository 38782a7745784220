"""Results in a report: records read back, tables beside the papers' rows."""

import dataclasses

import pytest
from evaluating import ENCODER

from coder_jax.evaluation.benchmarks import print_records
from coder_jax.evaluation.normalization import NormalizationOptions
from coder_jax.evaluation.record import (
    Answers,
    EvaluationRecord,
    Unreachable,
    read_records,
    write_records,
)
from coder_jax.mapping.confidence import CutoffTable
from coder_jax.report.results import (
    _MOST_WRONG,
    WrongAnswer,
    answers,
    answers_shown,
    read_results,
    result_tables,
    some_rows,
)
from data_pipeline.files.identity import typed
from data_pipeline.process import BadInput


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
        unreachable=Unreachable(mentions=0, share=0.0, scores_of_reachable={}),
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
    print_records(records, NormalizationOptions(k=(1,)))
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
            r"r.json: records\[0\]: benchmark is missing; make it again",
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


def answered(**changed):
    """A record of which it is known what its four mentions were answered."""
    table = {"mentions": 4, "cutoffs": [0.6, 0.9], "answered": [4, 2], "right": [2, 2]}
    answers = {
        "ranks": {"": "1 1 3 -"},
        "order": "0" * 64,
        "cutoffs": {"all": table, "FRE": table},
        "languages": "of the mentions",
        "similarities": {"low": 0.5, "high": 1.0, "right": [0, 2], "wrong": [2, 0]},
        "predictions": {"": "tables/own.mean.tsv"},
    }
    told = typed(answers | changed, Answers, "answers")
    return dataclasses.replace(normalization("own"), answers=told)


def write_table(folder, rows):
    (folder / "tables").mkdir()
    header = "mention\tgold\tgold_name\tright\tsimilarity\tconcept_1\tterm_1\n"
    (folder / "tables" / "own.mean.tsv").write_text(header + "".join(rows))


def test_errors_lie_beside_the_results(tmp_path):
    write_records(tmp_path / "r.json", [answered()])
    write_table(
        tmp_path,
        [
            "sore\tC1\tpain\tyes\t0.9\tC1\tpain\n",
            "hot\tC2\tfever\tno\t0.7\tC3\tburn\n",
            'odd "word\tC9\t\tno\t0.8\tC1\tpain\n',
        ],
    )
    (shown,) = answers_shown(read_results([("after", str(tmp_path / "r.json"))]))
    assert shown.name == "own, mean: after: some/model"
    assert shown.wrong_answers == [
        WrongAnswer('odd "word', "C9", "pain", "C1", 0.8),
        WrongAnswer("hot", "fever", "burn", "C3", 0.7),
    ]
    assert (shown.low, shown.high, shown.right, shown.wrong) == (0.5, 1.0, [0, 2], [2, 0])
    assert list(shown.cutoffs) == ["all"], "a single language is all"
    both = answered()
    both.answers.cutoffs["GER"] = both.answers.cutoffs["FRE"]
    assert list(answers_shown([both])[0].cutoffs) == ["all", "FRE", "GER"]


def test_the_surest_of_many_errors(tmp_path):
    write_records(tmp_path / "r.json", [answered()])
    write_table(tmp_path, [f"m\tC1\tpain\tno\t0.{n}\tC2\tt\n" for n in range(100, 250)])
    (shown,) = answers_shown(read_results([(None, str(tmp_path / "r.json"))]))
    assert len(shown.wrong_answers) == _MOST_WRONG
    assert [shown.wrong_answers[n].similarity for n in (0, -1)] == [0.249, 0.15]


def test_without_tables_there_are_no_errors_to_list(tmp_path):
    write_records(tmp_path / "r.json", [answered(), normalization("of before")])
    (shown,) = answers_shown(read_results([(None, str(tmp_path / "r.json"))]))
    assert shown.wrong_answers is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"similarities": {"low": 0.5, "high": 0.5, "right": [1], "wrong": [1]}},
            "own, mean: some/model: found similarities from 0.5 to 0.5 in 1 bins of right and 1",
        ),
        (
            {"similarities": {"low": 0.5, "high": 1.0, "right": [1], "wrong": []}},
            "in 1 bins of right and 0 of wrong answers; expected as many bins of both; make it",
        ),
        (
            {"cutoffs": {"all": {"mentions": 4, "cutoffs": [0.6], "answered": [2], "right": [3]}}},
            "tables.all: found columns that do not fit together",
        ),
        ({"cutoffs": {}}, "found no table 'all'"),
    ],
)
def test_answers_that_cannot_be(tmp_path, changed, message):
    write_records(tmp_path / "r.json", [answered(**changed)])
    records = read_results([(None, str(tmp_path / "r.json"))])
    with pytest.raises(BadInput, match=message):
        answers_shown(records)


def test_some_rows_of_a_long_table():
    table = CutoffTable(200, [n / 200 for n in range(200)], [*range(200, 0, -1)], [0] * 200)
    rows = some_rows(table)
    assert len(rows) == 16 and (rows[0], rows[-1]) == (table.rows[0], table.rows[-1])
    steps = {b.answered - a.answered for a, b in zip(rows, rows[1:], strict=False)}
    assert steps <= {-13, -14}
    assert some_rows(CutoffTable(2, [0.5], [2], [1])) == [(0.5, 0.5, 1.0, 2)]


# -------------------------------------------------------------------------------------------------
# What a report begins with: scores before and after, of records or of a run's evaluations.


def record(stage, first, model="m", pooling="cls", kind="normalization", **changed):
    names = ("acc@1", "acc@1_optimistic", "acc@5", "mrr", "acc@1_pessimistic")
    return EvaluationRecord(
        **{
            "benchmark": "own",
            "kind": kind,
            "path": "p",
            "content_hash": "h",
            "scores": dict(zip(names, (first, 0.99, first + 0.2, first + 0.1, 0.01), strict=True)),
            "counts": {"mentions": 1149, "unreachable": 0, "tied": 0},
            "unreachable": Unreachable(mentions=0, share=0.0, scores_of_reachable={}),
            "dictionary": {
                "source": "d.tsv",
                "retired": 0,
                "content_hash": 64 * "d",
                "terms": 37_758,
                "concepts": 19_034,
            },
            "scoring": {},
            "encoder": dataclasses.replace(ENCODER, model=model, pooling=pooling),
            "stage": stage,
            **changed,
        }
    )


def test_before_and_after_of_records():
    records = [record("after", 0.649, "run"), record("before", 0.453, "MiniLM", "mean")]
    (answer,) = answers([record("", 0.9), *records], [])
    assert answer.benchmark == "own"
    assert answer.question == (
        "1,149 mentions, each looked up among 37,758 terms of 19,034 concepts"
    )
    assert "the right one for 64.9 % of the mentions" in answer.summary
    assert "before training it was for 45.3 %" in answer.summary
    assert answer.scores == ["acc@1, %", "acc@5, %", "MRR, %"], "no bounds among them"
    before, after = answer.moments
    assert (before.when, before.encoder) == ("before", "MiniLM, pooling mean")
    assert (after.when, after.encoder) == ("after", "run, pooling cls")
    assert (before.cells, after.cells) == (["45.3", "65.3", "55.3"], ["64.9", "84.9", "74.9"])
    assert answer.change == ["+19.6", "+19.6", "+19.6"]


def test_the_better_of_several_poolings():
    records = [record("before", 0.3, pooling="cls"), record("before", 0.4, pooling="mean")]
    (answer,) = answers([*records, record("after", 0.35)], [])
    assert [moment.cells[0] for moment in answer.moments] == ["40.0", "35.0"]
    assert answer.change[0] == "-5.0" and "pooling mean" in answer.moments[0].encoder


@pytest.mark.parametrize(
    "changed",
    [
        {"benchmark": "other"},
        {"content_hash": "i"},
        {"dictionary": {"content_hash": 64 * "e", "terms": 9, "concepts": 5}},
        {"stage": ""},
        {"stage": "before"},
        {"scores": {"f1": 0.5}},
        {"scores": {"acc@1": None}},
    ],
)
def test_another_question_is_no_answer(changed):
    assert answers([record("before", 0.3)], []) == []
    after = record(**{"stage": "after", "first": 0.5} | changed)
    assert answers([record("before", 0.3), after], []) == []


def test_scores_that_are_no_shares():
    asked = {"counts": {"pairs": 566}, "dictionary": None}
    before, after = (
        record(stage, 0, kind="similarity", scores={"spearman": rho}, **asked)
        for stage, rho in (("before", 0.41), ("after", -0.5))
    )
    (answer,) = answers([before, after], [])
    assert (answer.question, answer.summary, answer.scores) == ("566 pairs", "", ["spearman"])
    assert [moment.cells for moment in answer.moments] == [["0.410"], ["-0.500"]]
    assert answer.change == ["-0.910"]


def lines(*steps):
    return [
        {"step": step, "eval": {"heldout": {"acc@1": 0.5 + step / 1000, "terms": 10_000}}}
        for step in steps
    ]


def test_a_run_alone_tells_of_its_own_evaluations():
    found = answers([], [*lines(0, 80), {"step": 90, "loss": 1.0}, *lines(240)])
    (answer,) = found
    assert answer.question == "evaluated in training, looked up among 10,000 terms"
    assert [(moment.when, moment.cells) for moment in answer.moments] == [
        *(("step 0", ["50.0"]), ("step 240", ["74.0"]))
    ]
    assert (answer.scores, answer.change) == (["acc@1, %"], ["+24.0"])
    assert answers([record("before", 0.3), record("after", 0.4)], lines(0, 80)) != found
    assert answers([], lines(80, 240)) == [], "nothing before the first step"
    assert answers([], lines(0)) == [] == answers([], [{"step": 0, "loss": 1.0}])


def test_scores_of_another_system_stay_as_they_are():
    found = answers([], [{"step": s, "eval": {"rank": 3.0 - s, "count": 5}} for s in (0, 2)])
    (answer,) = found
    assert (answer.benchmark, answer.question) == ("evaluation", "evaluated in training")
    assert (answer.scores, answer.change) == (["rank"], ["-2.000"])
    assert [moment.cells for moment in answer.moments] == [["3.000"], ["1.000"]]


def test_files_that_are_named_before_and_after(tmp_path):
    for name, share in (("a", 0.4), ("b", 0.6)):
        write_records(tmp_path / f"{name}.json", [record("", share, model=f"org/{name}")])
    files = [("before", str(tmp_path / "a.json")), ("after", str(tmp_path / "b.json"))]
    records = read_results(files)
    (answer,) = answers(records, [])
    assert [moment.encoder for moment in answer.moments] == [
        *("org/a, pooling cls", "org/b, pooling cls")
    ]
    ((_, rows),) = result_tables(records)
    assert [row.encoder for row in rows] == ["before: org/a", "after: org/b"]


def test_a_run_with_classes_says_what_was_searched():
    lines = [
        {
            "step": step,
            "eval": {
                "heldout": {"acc@1": 0.6, "terms": 10_000},
                "classes": {"acc@1": step / 1000, "classes": 13_255},
            },
        }
        for step in (0, 664)
    ]
    terms, classes = answers([], lines)
    assert terms.question == "evaluated in training, looked up among 10,000 terms"
    assert classes.question == "evaluated in training, looked up among 13,255 classes"
    assert classes.change == ["+66.4"]
    assert terms.moments[0].encoder == "the initial encoder"
    assert classes.moments[0].encoder == "classes as they began"
