"""Rows and cells of tables: what the tables of all kinds of benchmarks are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coder_jax.evaluation.record import EvaluationRecord
from coder_jax.evaluation.results.published import PublishedRow, rows_for


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
      cells: the first is the benchmark or the term.
      encoder: the model of the record, or what the paper calls its encoder.
      published: paper and table that the row is from; "" for a row of a record.
    """

    cells: list[str]
    encoder: str
    published: str = ""


Table = tuple[list[str], list[Row]]  # header and rows
PLUS_MINUS = " ±"  # between a score and half the width of its interval


def missing_column(records: Sequence[EvaluationRecord]) -> list[str]:
    """["missing"] if something has no vector in one of the records; encoders have one for all."""
    return ["missing"] if any(record.counts.get("missing") for record in records) else []


def published_rows(
    records: Sequence[EvaluationRecord],
    published: Iterable[PublishedRow],
    scores: Sequence[str],
    width: int,
    *,
    before: int,
    digits: int,
) -> list[Row]:
    """Rows of the papers for the benchmarks of the records, marked so.

    Args:
      published: all rows of this kind of benchmark.
      scores: what the paper calls the columns that have a value.
      width: columns of the table; the scores stand behind the first `before` of them.
      digits: behind the decimal point.
    """
    rows = []
    for name in dict.fromkeys(record.benchmark for record in records):
        for row in rows_for(name, published):
            values = [row.scores.get(score) for score in scores]
            if all(value is None for value in values):
                continue
            shown = ["" if value is None else f"{value:.{digits}f}" for value in values]
            cells = [name, row.pooling, *[""] * (before - 2), *shown]
            cells += [""] * (width - len(cells))
            rows.append(Row(cells, row.encoder, f"{row.paper}, table {row.table}"))
    return rows


def percent(share: float | None, interval: Sequence[float] | None = None) -> str:
    """A share in [0, 1] with two decimals: "75.00"; with its interval "75.00 ±1.9"."""
    return "undefined" if share is None else f"{100 * share:.2f}{half(interval, 100, 1)}"


def short_percent(share: float | None, interval: Sequence[float] | None = None) -> str:
    """A share in [0, 1] with one decimal, as the papers print F1: "75.0", "75.0 ±1.9"."""
    return one_decimal(None if share is None else 100 * share) + half(interval, 100, 1)


def one_decimal(value: float | None) -> str:
    """A number, or a dash for none: "3.1"."""
    return "-" if value is None else f"{value:.1f}"


def half(interval: Sequence[float] | None, scale: float, digits: int) -> str:
    """ " ±" and half the width of an interval [low, high], times `scale`; "" for none."""
    if not interval:
        return ""
    low, high = interval
    return f"{PLUS_MINUS}{scale * (high - low) / 2:.{digits}f}"
