"""Scores and answers of evaluations, as the report shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from coder_jax.evaluation.benchmarks import published_for, tables_of
from coder_jax.evaluation.normalization import NormalizationOptions, wrong_answers
from coder_jax.evaluation.record import Answers, EvaluationRecord, read_records
from coder_jax.evaluation.results import Table
from coder_jax.mapping.confidence import ALL, Cutoff, Cutoffs, CutoffTable
from coder_jax.report.curves import evaluated_among, is_number, scores_in
from data_pipeline.process import BadInput

# -------------------------------------------------------------------------------------------------
# The first part of a report: scores before and after training.
#
# They come from records that say when they were made, of the same benchmark with the same
# dictionary; or, where there are none, from the evaluations that a run made of itself.

_STAGES = ("before", "after")
# Kinds of benchmark whose scores are shares, shown in percent.
_SHARES = (
    *("normalization", "MANTRA GSC", "link prediction", "relation classification"),
    *("mentions in text", "coverage", "semantic group given", "several concepts"),
)
_MOST_SCORES = 5
# Suffixes and names of values that are not scores: bounds by ties, baselines.
_BOUNDS, _EASY = ("_pessimistic", "_optimistic", "_cosine"), ("most_frequent",)


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
class ComparedAnswer:
    """One question, answered before and after training.

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
) -> list[ComparedAnswer]:
    """An answer for each benchmark that was scored before and after training.

    Args:
      records: of evaluations; of several before, or after, on one benchmark the best counts.
      lines: of a run's metrics.jsonl, for where records give no answer.
    """
    return list(_answers_of_records(records)) or list(_answers_of_run(lines))


def _answers_of_records(records: Sequence[EvaluationRecord]) -> Iterator[ComparedAnswer]:
    """Answers of records that say when they were made."""
    asked: dict[tuple[str, str, str, str], dict[str, list[EvaluationRecord]]] = {}
    for record in records:
        dictionary = (record.dictionary or {}).get("content_hash", "")
        question = record.benchmark, record.kind, record.content_hash, dictionary
        asked.setdefault(question, {}).setdefault(record.stage, []).append(record)
    for stages in asked.values():
        names = _common_scores([one for stage in _STAGES for one in stages.get(stage, [])])
        if not names or not all(stage in stages for stage in _STAGES):
            continue
        before, after = (max(stages[s], key=lambda one: one.scores[names[0]] or 0) for s in _STAGES)
        percent = before.kind in _SHARES
        values = [[float(one.scores[name] or 0) for name in names] for one in (before, after)]
        summary = ""
        if before.kind == "normalization" and names[0] == "acc@1":
            first, last = (_shown(value[0], percent) for value in values)
            summary = (
                f"The concept put first is the right one for {last} % of the mentions; before "
                f"training it was for {first} %."
            )
        told = [f"{one.encoder.model}, pooling {one.encoder.pooling}" for one in (before, after)]
        moments = list(zip(_STAGES, told, values, strict=True))
        yield _answer_of(
            before.benchmark, _asked_in_words(before), summary, names, moments, percent
        )


def _answers_of_run(lines: Sequence[Mapping[str, Any]]) -> Iterator[ComparedAnswer]:
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
        names = [name for of, name in both if of == benchmark][:_MOST_SCORES]
        # The range of a system's own scores is unknown, so they are shown as they are.
        percent = any(name.startswith("acc@") for name in names)
        # A run with classes is scored twice: by the nearest term and by its classes.
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
        yield _answer_of(
            benchmark or "evaluation", question or "evaluated in training", "", names, moments,
            percent,
        )  # fmt: skip


def _answer_of(
    benchmark: str,
    question: str,
    summary: str,
    names: list[str],
    moments: Sequence[tuple[str, str, list[float]]],
    percent: bool,
) -> ComparedAnswer:
    """One answer, from (when, encoder, values) of two moments."""
    (_, _, before), (_, _, after) = moments
    change = [_shown(b - a, percent, "+") for a, b in zip(before, after, strict=True)]
    cells = [Moment(when, of, [_shown(v, percent) for v in values]) for when, of, values in moments]
    names = [f"{name.upper() if name == 'mrr' else name}{', %' * percent}" for name in names]
    return ComparedAnswer(benchmark, question, summary, names, cells, change)


def _common_scores(records: Sequence[EvaluationRecord]) -> list[str]:
    """The first scores that all records have."""
    held = [
        [
            name
            for name, value in record.scores.items()
            if is_number(value) and not name.endswith(_BOUNDS) and name not in _EASY
        ]
        for record in records
    ]
    return [name for name in (held or [[]])[0] if all(name in one for one in held)][:_MOST_SCORES]


def _asked_in_words(record: EvaluationRecord) -> str:
    """The question of a benchmark: its counts, and what was searched."""
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


def _shown(value: float, percent: bool, sign: str = "") -> str:
    """A share in percent with one decimal; any other value with three."""
    return f"{100 * value:{sign}.1f}" if percent else f"{value:{sign}.3f}"


# -------------------------------------------------------------------------------------------------
# Result tables from the JSON files of `evaluate`, with the papers' rows; and wrong answers.

_MOST_WRONG = 100  # answers that are listed of a record
_MOST_CUTOFFS = 16  # rows of a table
_TINY = 1e-6  # ends are means that were added up in another order


class WrongAnswer(NamedTuple):
    """A mention that was answered with a wrong concept."""

    mention: str
    gold: str  # preferred terms of its concepts, or these where they have none
    answer: str  # the nearest term
    concept: str  # of the answer
    similarity: float


@dataclass(frozen=True)
class AnswersShown:
    """What the mentions of a benchmark were answered by an encoder.

    Attributes:
      name: benchmark, pooling and encoder.
      low, high: the least and largest similarity of the distribution.
      right, wrong: how many answers there are in each of its bins.
      cutoffs: the table of all mentions, and of each language if there are several.
      wrong_answers: the surest ones; None where the tables of `evaluate --predictions` are not
        there.
    """

    name: str
    low: float
    high: float
    right: list[int]
    wrong: list[int]
    cutoffs: Mapping[str, CutoffTable]
    wrong_answers: list[WrongAnswer] | None


def read_results(files: Sequence[tuple[str | None, str]]) -> list[EvaluationRecord]:
    """The records of several files.

    Args:
      files: (name for the encoder in the tables or None for the model of the record, path). The
        names "before" and "after" say when its records were made, and leave the model's name.

    Raises:
      BadInput: a file that `evaluate --json` did not write.
    """
    records = []
    for name, path in files:
        for number, record in enumerate(read_records(path)):
            _check_record(record, f"{path}: records[{number}]")
            records.append(_named_record(_beside(record, Path(path).parent), name))
    return sorted(records, key=lambda record: record.benchmark)  # a benchmark's stand together


def _check_record(record: EvaluationRecord, where: str) -> None:
    """Raise BadInput for a record that no table can show."""
    again = "make the file again with `python -m coder_jax evaluate --json`"
    scores = record.scores
    for best in (name for name in scores if name.endswith("_optimistic")):
        name = best.removesuffix("_optimistic")
        found = [scores.get(one) for one in (f"{name}_pessimistic", name, best)]
        if not _rising([-_TINY, *found, 1 + _TINY]):
            raise BadInput(
                f"{where}: {name} is {found[1]}, from {found[0]} to {found[2]} by how ties are "
                f"counted; expected numbers from 0 to 1, none less than the one before; {again}"
            )
    try:
        tables = tables_of([record], NormalizationOptions(k=_common_ks([record])))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # Scores and counts depend on the benchmark, so its own table is asked for them.
        raise BadInput(
            f"{where} is not whole ({type(error).__name__}: {error}); {again}"
        ) from error
    if not tables:
        raise BadInput(
            f"{where} is of the kind {record.kind!r}, which this version of coder_jax does not "
            f"know; {again}"
        )


def _beside(record: EvaluationRecord, folder: Path) -> EvaluationRecord:
    """A record whose paths of tables are relative to this folder."""
    if record.answers is None:
        return record
    files = record.answers.predictions.items()
    found = {fold: str(folder / file) for fold, file in files}
    return replace(record, answers=replace(record.answers, predictions=found))


def _rising(numbers: Sequence[float | None]) -> bool:
    """Whether all are numbers in rising order, apart from rounding."""
    there = [number for number in numbers if number is not None]
    return len(there) == len(numbers) and all(low <= high + _TINY for low, high in pairwise(there))


def _named_record(record: EvaluationRecord, name: str | None) -> EvaluationRecord:
    """A record under the name `name`, or of that stage."""
    if name in _STAGES:
        return replace(record, stage=name)
    encoder = replace(record.encoder, model=name) if name else record.encoder
    return replace(record, encoder=encoder)


def _with_stage(record: EvaluationRecord) -> EvaluationRecord:
    """A record whose encoder's name begins with its stage (before, after), if known."""
    if not record.stage:
        return record
    model = f"{record.stage}: {record.encoder.model}"
    return replace(record, encoder=replace(record.encoder, model=model))


def result_tables(records: Sequence[EvaluationRecord]) -> list[Table]:
    """A table for each benchmark of the papers, then one for each kind of the other benchmarks.

    acc@k is shown for the k that all records of a table have.

    Raises:
      BadInput: records of a table that have no k in common.
    """
    records = [_with_stage(record) for record in records]
    published = dict.fromkeys(one.benchmark for one in records if published_for(one.benchmark))
    groups = [[one for one in records if one.benchmark == name] for name in published]
    groups.append([one for one in records if one.benchmark not in published])
    return [
        table
        for group in groups
        for table in tables_of(group, NormalizationOptions(k=_common_ks(group)))
    ]


def _common_ks(records: Sequence[EvaluationRecord]) -> tuple[int, ...]:
    """The k of acc@k that all records of normalization have; BadInput if there are none."""
    held: list[tuple[str, set[int]]] = []
    for record in records:
        if record.kind == "normalization":
            ks = {int(name[4:]) for name in record.scores if re.fullmatch(r"acc@\d+", name)}
            held.append((f"{record.benchmark} of {record.encoder.model}", ks))
    common = tuple(sorted(set.intersection(*(ks for _, ks in held)))) if held else ()
    if held and not common:
        found = dict.fromkeys(f"{name} has acc@k for k of {sorted(ks)}" for name, ks in held)
        raise BadInput(
            f"--results: {'; '.join(found)}; expected one k that all have: evaluate with the same "
            "--k"
        )
    return common


def answers_shown(records: Sequence[EvaluationRecord]) -> list[AnswersShown]:
    """The answers to the mentions of each record that has them.

    Raises:
      BadInput: cut-offs that cannot be, or a file that is no table of predictions.
    """
    return [
        _shown_of(record, record.answers)
        for record in map(_with_stage, records)
        if record.answers is not None
    ]


def _shown_of(record: EvaluationRecord, answers: Answers) -> AnswersShown:
    """The answers of one record."""
    name = f"{record.benchmark}, {record.encoder.pooling}: {record.encoder.model}"
    again = "make it again with `python -m coder_jax evaluate --json`"
    tables = answers.cutoffs
    Cutoffs(tables).check(f"--results: {name}", again)
    files = [Path(file) for file in answers.predictions.values()]
    there = [file for file in files if file.is_file()]
    wrong = [row for file in there for row in wrong_answers(file)]
    wrong.sort(key=lambda row: -row["similarity"])
    drawn = answers.similarities
    if not (drawn.low < drawn.high and len(drawn.right) == len(drawn.wrong) > 0):
        raise BadInput(
            f"--results: {name}: found similarities from {drawn.low} to {drawn.high} in "
            f"{len(drawn.right)} bins of right and {len(drawn.wrong)} of wrong answers; "
            f"expected as many bins of both; {again}"
        )
    shown = tables if len(tables) > 2 else {ALL: tables[ALL]}  # a single language is all
    return AnswersShown(
        name,
        drawn.low,
        drawn.high,
        drawn.right,
        drawn.wrong,
        {language: table for language, table in shown.items() if table.cutoffs},
        [
            WrongAnswer(
                row["mention"],
                row["gold_name"] or row["gold"],
                row["term_1"],
                row["concept_1"],
                row["similarity"],
            )
            for row in wrong[:_MOST_WRONG]
        ]
        if there
        else None,
    )


def some_rows(table: CutoffTable) -> list[Cutoff]:
    """At most _MOST_CUTOFFS rows of a table, evenly spaced, including both ends."""
    rows = table.rows
    if len(rows) <= _MOST_CUTOFFS:
        return rows
    step = (len(rows) - 1) / (_MOST_CUTOFFS - 1)
    return [rows[round(number * step)] for number in range(_MOST_CUTOFFS)]
