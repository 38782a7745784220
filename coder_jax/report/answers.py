"""What a report begins with: the scores before training beside those after it, and on what.

They come from records that say when they were made, of the same benchmark with the same
dictionary; or, where there are none, from the evaluations that a run made of itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coder_jax.evaluation.record import EvaluationRecord
from coder_jax.report.curves import evaluated_among, is_number, scores_in

STAGES = ("before", "after")
# Kinds of benchmark whose scores are shares, and are shown in percent.
SHARES = (
    *("normalization", "MANTRA GSC", "link prediction", "relation classification"),
    *("mentions in text", "coverage"),
)
MOST_SCORES = 5
# Ends and names of what stands beside scores: bounds by ties, and what would be easy.
BOUNDS, EASY = ("_pessimistic", "_optimistic", "_cosine"), ("most_frequent",)


@dataclass(frozen=True)
class Moment:
    """The scores of one encoder.

    Attributes:
      when: "before" or "after", or a step.
      encoder: its name and pooling, "" where that is not told.
      cells: a text for each score.
    """

    when: str
    encoder: str
    cells: list[str]


@dataclass(frozen=True)
class Answer:
    """One question, asked before training and after it.

    Attributes:
      benchmark: its name.
      question: what was asked, among what, in words.
      summary: the first score in a sentence, or "".
      scores: n names.
      moments: before and after.
      change: n texts, with their sign.
    """

    benchmark: str
    question: str
    summary: str
    scores: list[str]
    moments: list[Moment]
    change: list[str]


def answers(
    records: Sequence[EvaluationRecord], lines: Sequence[Mapping[str, Any]]
) -> list[Answer]:
    """An answer for each benchmark that was asked before and after.

    Args:
      records: of evaluations; of several before, or after, on one benchmark the best counts.
      lines: of a run's metrics.jsonl, for where records give no answer.
    """
    return list(answers_of_records(records)) or list(answers_of_run(lines))


def answers_of_records(records: Sequence[EvaluationRecord]) -> Iterator[Answer]:
    """Answers of records that say when they were made."""
    asked: dict[tuple[str, str, str, str], dict[str, list[EvaluationRecord]]] = {}
    for record in records:
        dictionary = (record.dictionary or {}).get("content_hash", "")
        question = record.benchmark, record.kind, record.content_hash, dictionary
        asked.setdefault(question, {}).setdefault(record.stage, []).append(record)
    for stages in asked.values():
        names = common_scores([one for stage in STAGES for one in stages.get(stage, [])])
        if not names or not all(stage in stages for stage in STAGES):
            continue
        before, after = (max(stages[s], key=lambda one: one.scores[names[0]] or 0) for s in STAGES)
        percent = before.kind in SHARES
        values = [[float(one.scores[name] or 0) for name in names] for one in (before, after)]
        summary = ""
        if before.kind == "normalization" and names[0] == "acc@1":
            first, last = (shown(value[0], percent) for value in values)
            summary = (
                f"The concept put first is the right one for {last} % of the mentions; before "
                f"training it was for {first} %."
            )
        told = [f"{one.encoder.model}, pooling {one.encoder.pooling}" for one in (before, after)]
        moments = list(zip(STAGES, told, values, strict=True))
        yield answer_of(before.benchmark, asked_in_words(before), summary, names, moments, percent)


def answers_of_run(lines: Sequence[Mapping[str, Any]]) -> Iterator[Answer]:
    """Answers of the evaluations that a run made: before its first step, and its last."""
    evaluated = [line for line in lines if "eval" in line]
    if len(evaluated) < 2 or evaluated[0]["step"] != 0:
        return
    ends = evaluated[0], evaluated[-1]
    found: list[dict[tuple[str, str], float]] = [
        {(benchmark, name): value for benchmark, name, value in scores_in(line["eval"], "")}
        for line in ends
    ]
    both = [key for key in found[0] if key in found[1]]
    among = {what: evaluated_among(ends, what) for what in ("terms", "classes")}
    for benchmark in dict.fromkeys(benchmark for benchmark, _ in both):
        names = [name for of, name in both if of == benchmark][:MOST_SCORES]
        # A system's own scores, whose range is not known, stay as they are.
        percent = any(name.startswith("acc@") for name in names)
        # A run with classes is asked twice: by the nearest term, and by its classes.
        what = "classes" if benchmark == "classes" else "terms"
        looked_up = f"evaluated in training, looked up among {among[what]} {what}"
        question = looked_up if among[what] else ""
        start = "classes as they began" if what == "classes" else "the initial encoder"
        moments = [
            (
                f"step {line['step']:,}",
                start if line["step"] == 0 else "this one",
                [values[benchmark, name] for name in names],
            )
            for line, values in zip(ends, found, strict=True)
        ]
        yield answer_of(
            benchmark or "evaluation", question or "evaluated in training", "", names, moments,
            percent,
        )  # fmt: skip


def answer_of(
    benchmark: str,
    question: str,
    summary: str,
    names: list[str],
    moments: Sequence[tuple[str, str, list[float]]],
    percent: bool,
) -> Answer:
    """An answer out of (when, encoder, values) of two moments."""
    (_, _, before), (_, _, after) = moments
    change = [shown(b - a, percent, "+") for a, b in zip(before, after, strict=True)]
    cells = [Moment(when, of, [shown(v, percent) for v in values]) for when, of, values in moments]
    names = [f"{name.upper() if name == 'mrr' else name}{', %' * percent}" for name in names]
    return Answer(benchmark, question, summary, names, cells, change)


def common_scores(records: Sequence[EvaluationRecord]) -> list[str]:
    """The first scores that all of the records have."""
    held = [
        [
            name
            for name, value in record.scores.items()
            if is_number(value) and not name.endswith(BOUNDS) and name not in EASY
        ]
        for record in records
    ]
    return [name for name in (held or [[]])[0] if all(name in one for one in held)][:MOST_SCORES]


def asked_in_words(record: EvaluationRecord) -> str:
    """What a benchmark asked: its counts, and what was searched."""
    counted = ("mentions", "pairs", "triplets", "names", "concepts")
    counts = [f"{record.counts[name]:,} {name}" for name in counted if record.counts.get(name)]
    asked = counts[0] if counts else record.kind
    dictionary = record.dictionary
    if dictionary is None:
        return asked
    return (
        f"{asked}, each looked up among {dictionary['terms']:,} terms of "
        f"{dictionary['concepts']:,} concepts"
    )


def shown(value: float, percent: bool, sign: str = "") -> str:
    """A share in percent with one decimal; another value with three."""
    return f"{100 * value:{sign}.1f}" if percent else f"{value:{sign}.3f}"
