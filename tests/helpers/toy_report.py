"""A report with every part, out of made-up numbers and terms that look like markup."""

import numpy as np

from coder_jax.evaluation.results import Row
from coder_jax.mapping.confidence import CutoffTable
from coder_jax.report.curves import Curve, Panel, training_panels
from coder_jax.report.dictionary import Map, MapFigure, MapGroup, explorer_data, gather_entries
from coder_jax.report.model_answers import (
    AnsweredMention,
    CandidateAnswers,
    ClassAnswers,
    Guess,
    MentionWithCandidates,
    ShownCandidate,
)
from coder_jax.report.page import Report
from coder_jax.report.pictures import compare_relations
from coder_jax.report.results import AnswersShown, ComparedAnswer, Moment, WrongAnswer
from data_pipeline.dataset.dictionary import Dictionary

HOSTILE = [
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 2'>",
    "<!-- <b>bold</b> --> & \"double\" 'single' {{ 7 * 7 }}",
    "50% #1 a/b?c=d é 痛み \u2028 end",
]
PLAIN = ["heart attack", "myocardial infarction", "heart failure", "Crohn disease", "infarctus"]
TERMS = PLAIN + HOSTILE
CONCEPTS = ["C1", "C1", "C2", "C3", "C1", "C4", "C5", "C6", "C7"]
LANGUAGES = ["ENG"] * 4 + ["FRE"] + ["ENG"] * 4
SOURCES = [("MSH", "NCI"), ("NCI",), ("MSH",), ("NCI",), ("MSHFRE",), *[("MSH",)] * 4]


ANSWERS = AnswersShown(
    "mine, cls: <b>ours</b>",
    *(0.5, 1.0, [0, 1, 3, 9], [4, 2, 1, 0]),
    {
        language: CutoffTable(20, [0.5, 0.7, 0.9], [20, 14, 9], [13, 12, 9])
        for language in ("all", "<i>FRE</i>")
    },
    [
        WrongAnswer("chest pain on exertion", "Angina pectoris", "chest pain", "C9", 0.91),
        *(WrongAnswer(one, one, one, one, 0.6) for one in HOSTILE),
    ],
)


BY_CLASSES = ClassAnswers(
    "<i>mentions.tsv</i>",
    *(9, 13_255, 8),
    [
        AnsweredMention(
            "crise cardiaque",
            ["heart attack C1"],
            "DISO",
            [Guess("C1", "heart attack", 0.71, True), Guess("C2", "heart failure", 0.2, False)],
            [Guess("C2", "heart failure", 0.63, False)],
        ),
        *(AnsweredMention(one, [one], "", [Guess(one, one, 0.5, False)], []) for one in HOSTILE),
    ],
)


def shown(name, distance, probability, score, **marks):
    marks = {"right": False, "answer": False} | marks
    return ShownCandidate("C1", name, distance, probability, score, **marks)


RIGHT = shown("heart attack", 2.5, 0.97, 0.95, right=True, answer=True)
OTHER = shown("heart failure", 1.25, 0.25, 0.5)
BY_CANDIDATES = CandidateAnswers(
    "<i>lists</i>",
    *("dev", 787, 11_915, 76_237, 1, (0, 4)),
    [
        MentionWithCandidates(
            *("attack of the heart", ["heart attack C1", "x C2"], 1, 3, 0.66, True),
            *([OTHER, RIGHT], [RIGHT, OTHER]),
        ),
        *(
            MentionWithCandidates(
                *(one, [one], 0, 1, 1.0, False), *([shown(one, 0.5, 0.5, 0.5)],) * 2
            )
            for one in HOSTILE
        ),
    ],
)


LEARNING = Panel(
    "own acc@1",
    "%",
    "steps",
    (250, 1000),
    [
        Curve("coder <b>", [250, 1000], [70.0, 75.5], errors=(0.5, 0.0)),
        Curve("start", [250, 1000], [61.0, 61.0], 1),
    ],
    from_zero=False,
    log_x=True,
)


def full_report():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(len(TERMS), 8)).astype(np.float32)
    vectors[1] = vectors[0] + 0.1 * vectors[2]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    dictionary = Dictionary(TERMS, CONCEPTS, "toy.tsv", languages=LANGUAGES, vocabularies=SOURCES)
    types = {"C1": ["<i>Type</i>"], "C2": ["Finding"]}
    entries = gather_entries(dictionary, list(dict.fromkeys(CONCEPTS)), types)
    groups = [MapGroup(f"concept {i} </script>", TERMS[:3]) for i in range(20)]
    places = rng.uniform(-0.7, 0.7, (60, 2))
    figure = MapFigure(groups, [Map("trained", places, 0.75), Map("initial", -places, 0.5)])
    matrices = np.eye(6) + 0.1 * rng.normal(size=(4, 6, 6))
    rows = [Row(["cadec", "mean", "50.00"], "ours <b>"), Row(["cadec", "cls", "4"], "X", "V1, 3")]
    moments = [Moment("before", "MiniLM <b>", ["45.3"]), Moment("after", "ours", ["64.9"])]
    return Report(
        title="an encoder </title><b>",
        answers=[
            ComparedAnswer(
                "held-out", "1,149 mentions", "Better.", ["acc@1, %"], moments, ["+19.6"]
            )
        ],
        facts=[("pooling", "cls"), ("run", "</dd><script>window.hacked = 3</script>")],
        tables=[(["normalization", "pooling", "acc@1"], rows)],
        given=[ANSWERS],
        learning=[LEARNING],
        panels=training_panels([{"step": s, "loss": 1 / s, "loss_term": 0.5} for s in (1, 2, 3)]),
        by_classes=BY_CLASSES,
        by_candidates=BY_CANDIDATES,
        by_concept=figure,
        by_type=figure,
        relations=compare_relations(matrices, ["CHD|isa", "PAR|inverse_isa", "RO|<u>", "RO|x"]),
        explorer=explorer_data(entries, vectors, 3),
        explorer_note="All terms of toy.tsv.",
    )
