"""The table of mentions in text: for each type encoders, what needs none, and the paper's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coder_jax.evaluation.record import EvaluationRecord
from coder_jax.evaluation.results.cells import Row, Table, missing_column, percent
from coder_jax.evaluation.results.published import PublishedRow, rows_for

# Columns of scores and the names of these.
SHOWN = {
    "acc@1": "acc@1",
    "acc@1 + XM": "acc@1 + XM",
    "MAP": "map",
    "MAP distinct": "map of distinct",
    "reached": "reached",
    "MAP reached": "map of reached",
}


def table(records: Sequence[EvaluationRecord], published: Sequence[PublishedRow]) -> Table:
    """Scores in percent, with half the width of their intervals; the paper's are of another
    dictionary.
    """
    shown = {
        column: name
        for column, name in SHOWN.items()
        if "XM" not in name or any(name in record.scores for record in records)
    }
    missing = missing_column(records)
    header = ["mentions in text", "pooling", "mentions", "distinct", "names", "concepts", *shown]
    header += ["tied", *missing]
    rows: list[Row] = []
    sets = dict.fromkeys((record.benchmark, name) for record in records for name in record.folds)
    for benchmark, kind in sets:
        label = f"{benchmark} {kind}"
        own = [one for one in records if one.benchmark == benchmark and kind in one.folds]
        for record in own:
            rows.append(Row(_cells(label, record, kind, shown, missing), record.encoder.model))
        baselines: dict[str, dict[str, float]] = {}
        for record in own:
            baselines |= record.folds[kind]["baselines"]
        for name, scores in baselines.items():
            start = [f"{label}: {name}", *[""] * 5]
            rows.append(Row([*start, *_percents(scores, shown), "", *[""] * len(missing)], name))
        rows += _of_papers(label, kind, shown, rows_for(benchmark, published), len(header))
    return header, rows


def _cells(
    label: str,
    record: EvaluationRecord,
    kind: str,
    shown: Mapping[str, str],
    missing: Sequence[str],
) -> list[str]:
    fold, dictionary = record.folds[kind], record.dictionary or {}
    counts: Mapping[str, Any] = fold["counts"]
    numbers = [counts["mentions"], counts["distinct"], dictionary["terms"], dictionary["concepts"]]
    return [
        *(label, record.encoder.pooling, *(f"{one:,}" for one in numbers)),
        *_percents(fold["scores"], shown, fold["intervals"]),
        f"{counts['tied']:,}",
        *(f"{record.counts[one]:,}" for one in missing),
    ]


def _percents(
    scores: Mapping[str, float],
    shown: Mapping[str, str],
    intervals: Mapping[str, Sequence[float]] | None = None,
) -> list[str]:
    sure = intervals or {}
    return [
        percent(scores[name], sure.get(name)) if name in scores else "" for name in shown.values()
    ]


def _of_papers(
    label: str,
    kind: str,
    shown: Mapping[str, str],
    published: Sequence[PublishedRow],
    width: int,
) -> list[Row]:
    """A row for each encoder of the paper, with all its scores."""
    merged: dict[tuple[str, str], dict[str, float]] = {}
    tables: dict[tuple[str, str], list[str]] = {}
    for row in published:
        own = {name: row.scores.get(f"{kind} {name}") for name in shown.values()}
        found = {name: score for name, score in own.items() if score is not None}
        if found:
            merged.setdefault((row.paper, row.encoder), {}).update(found)
            tables.setdefault((row.paper, row.encoder), []).append(row.table)
    rows = []
    for (paper, encoder), scores in merged.items():
        cells = [label, "", "", "", "", "", *_percents(scores, shown)]
        named = " and ".join(dict.fromkeys(tables[paper, encoder]))
        cells += [""] * (width - len(cells))
        rows.append(Row(cells, encoder, f"{paper}, table {named}"))
    return rows
