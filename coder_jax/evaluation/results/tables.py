"""Tables of records: one for each kind of benchmark; and tables as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coder_jax.evaluation.benchmarks import makers_of_tables, options_with
from coder_jax.evaluation.record import EvaluationRecord
from coder_jax.evaluation.results.cells import PLUS_MINUS, Row, Table


def print_records(records: Sequence[EvaluationRecord], **options: Any) -> None:
    """Prints the tables of `tables_of`."""
    for number, table in enumerate(tables_of(records, **options)):
        if number:
            print()
        print_table(*table)


def tables_of(records: Sequence[EvaluationRecord], **options: Any) -> list[Table]:
    """A table for each kind of benchmark that there is: benchmarks x poolings.

    Where gold concepts are unreachable, a second row has the scores of the other mentions. Below
    the rows of a benchmark whose name says that it is one of the papers' (cadec, psytar, mantra,
    mcsm, ddbrc, quaero) are the papers' own, marked as published.

    Args:
      records: of any kinds.
      options: values of flags that tables know, such as k of acc@k; defaults for the others.
    """
    chosen, makers = options_with(options), makers_of_tables()
    by_kind = {kind: [record for record in records if record.kind == kind] for kind in makers}
    return [makers[kind].table(own, chosen) for kind, own in by_kind.items() if own]


def print_table(header: list[str], rows: list[Row]) -> None:
    """Prints columns as wide as their longest cell: the first two left, numbers right.

    Scores stand below scores, whether or not they have an interval.
    """
    lines = [printed_cells(row) for row in rows]
    for column in range(2, len(header)):
        sure = [PLUS_MINUS + line[column].partition(PLUS_MINUS)[2] for line in lines]
        width = max((len(one) for one in sure if one != PLUS_MINUS), default=0)
        for line, one in zip(lines, sure, strict=True):
            score = line[column].partition(PLUS_MINUS)[0]
            line[column] = score + f"{'' if one == PLUS_MINUS else one:<{width}}"
    widths = [max(len(line[column]) for line in (header, *lines)) for column in range(len(header))]
    for cells in (header, ["-" * width for width in widths], *lines):
        line = [
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        print("  ".join(line).rstrip())


def printed_cells(row: Row) -> list[str]:
    """The cells of a row; a published one says so in its first."""
    if not row.published:
        return [*row.cells]
    label = f"{row.cells[0]}: {row.encoder} (published, {row.published})"
    return [label, *row.cells[1:]]
