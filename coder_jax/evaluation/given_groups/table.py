"""The table of mentions with groups: set by set, encoders, floor of training mentions, papers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coder_jax.evaluation.given_groups.counts import MEASURES
from coder_jax.evaluation.record import EvaluationRecord
from coder_jax.evaluation.results.cells import Row, Table, missing_column, short_percent
from coder_jax.evaluation.results.published import PublishedRow, rows_for

SHOWN = (*MEASURES, "mrr", "acc@1")
RESTRICTED = "restricted to reachable gold"


def table(records: Sequence[EvaluationRecord], published: Sequence[PublishedRow]) -> Table:
    """Scores in percent, with half the width of their intervals.

    The papers' rows stand beside results on all groups: they are of the whole UMLS of 2014, and a
    smaller dictionary cannot reach them.
    """
    missing = missing_column(records)
    header = [
        "semantic group given",
        "pooling",
        "gold",
        "unreachable",
        "threshold",
        "precision",
        "recall",
        "F1",
    ]
    header += ["MRR", "acc@1", "tied", *missing]
    rows = []
    sets = dict.fromkeys((r.benchmark, name) for r in records for name in r.folds)
    for benchmark, name in sets:
        own = [r for r in records if r.benchmark == benchmark and name in r.folds]
        for record in own:
            rows += [
                Row(_filled(cells, len(header)), record.encoder.model)
                for cells in _cells(record, name, missing)
            ]
        rows += list(_majority(own[0], name, len(header)))
        if own[0].scoring["semantic_groups"] == "all":
            rows += list(_of_papers(benchmark, name, published, len(header)))
    return header, rows


def _cells(record: EvaluationRecord, name: str, missing: Sequence[str]) -> Iterator[list[str]]:
    """The rows of a set: without a threshold, then with each; all gold, then what is reachable."""
    fold = record.folds[name]
    counts = fold["counts"]
    label, pooling = _label(record, name), record.encoder.pooling
    for threshold, found in {"": fold, **fold["thresholds"]}.items():
        sure = {} if threshold else fold["intervals"]
        scores = [short_percent(found["scores"][one], sure.get(one)) for one in SHOWN]
        rest = [f"{counts['tied']:,}", *(f"{record.counts[one]:,}" for one in missing)]
        out = counts["unreachable"]
        yield [
            label,
            pooling,
            f"{counts['gold']:,}",
            f"{out:,}",
            threshold or "none",
            *scores,
            *rest,
        ]
        if out and found["reachable"]:
            scores = [short_percent(found["reachable"][one]) for one in SHOWN]
            left = f"{counts['gold'] - out:,}"
            yield [
                f"{label}, {RESTRICTED}",
                pooling,
                left,
                "0",
                threshold or "none",
                *scores,
            ]


def _label(record: EvaluationRecord, name: str) -> str:
    groups = record.scoring["semantic_groups"]
    return f"{record.benchmark} {name}" + ("" if groups == "all" else f", {' '.join(groups)}")


def _majority(record: EvaluationRecord, name: str, width: int) -> Iterator[Row]:
    fold = record.folds[name]
    counts = fold["counts"]
    label = f"{_label(record, name)}, majority CUI of training mentions"
    rows = [(label, counts["gold"], fold["majority"])]
    if counts["unreachable"]:
        left = counts["gold"] - counts["unreachable"]
        rows.append((f"{label}, {RESTRICTED}", left, fold["majority_of_reachable"]))
    for label, gold, found in rows:
        if found:
            scores = [short_percent(found[one]) for one in MEASURES]
            yield Row(_filled([label, "", f"{gold:,}", "", "", *scores], width), "majority CUI")


def _of_papers(
    benchmark: str, name: str, published: Sequence[PublishedRow], width: int
) -> Iterator[Row]:
    for row in rows_for(benchmark, published):
        values = [row.scores.get(f"{name} {one}") for one in MEASURES]
        if any(value is not None for value in values):
            shown = ["" if value is None else f"{value:.1f}" for value in values]
            cells = [f"{benchmark} {name}", row.pooling, "", "", "", *shown]
            yield Row(_filled(cells, width), row.encoder, f"{row.paper}, table {row.table}")


def _filled(cells: list[str], width: int) -> list[str]:
    return cells + [""] * (width - len(cells))
