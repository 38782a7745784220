"""What a report begins with: scores before and after, of records or of a run's evaluations."""

import dataclasses

import pytest
from evaluating import ENCODER

from coder_jax.evaluation.record import EvaluationRecord, write_records
from coder_jax.report.answers import answers
from coder_jax.report.results import read_results, result_tables


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
            "unreachable": {"mentions": 0, "share": 0.0, "scores_of_reachable": {}},
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
