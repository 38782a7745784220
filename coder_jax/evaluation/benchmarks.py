"""All kinds of benchmarks: the kind of a path, reading, scoring, and tables of results."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coder_jax.evaluation.annotated_text import AnnotatedText
from coder_jax.evaluation.benchmark import Benchmark, Found, Given, Options
from coder_jax.evaluation.case_studies import CaseStudy
from coder_jax.evaluation.coded_terms import CodedTerms
from coder_jax.evaluation.concepts import ConceptSet
from coder_jax.evaluation.given_groups import Quaero
from coder_jax.evaluation.links import LinkBenchmark
from coder_jax.evaluation.mantra import Mantra
from coder_jax.evaluation.name_pairs import Coverage
from coder_jax.evaluation.normalization import Folds, Mentions, XlBel
from coder_jax.evaluation.published import PublishedRow, rows_for
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.relations import RelationBenchmark
from coder_jax.evaluation.results import PLUS_MINUS, Row, Table
from coder_jax.evaluation.several_concepts import MultipleNames
from coder_jax.evaluation.similarity import SimilarityBenchmark
from coder_jax.evaluation.vectors import TERMS, Vectors, WordVectors
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.tables import tab_separated
from data_pipeline.process import BadInput
from data_pipeline.terminology.retired_cuis import RetiredCuis

# -------------------------------------------------------------------------------------------------
# The list of all benchmarks; the kind of a path, reading and scoring.
#
# To add one, write its class (see `benchmark.Benchmark`) and put it into BENCHMARKS.

# In the order of help, messages and tables. A path goes to the first kind that claims it, else to
# the first that would take it.
BENCHMARKS: tuple[type[Benchmark], ...] = (
    Mentions,
    Folds,
    XlBel,
    CodedTerms,
    SimilarityBenchmark,
    Quaero,
    Mantra,
    MultipleNames,
    AnnotatedText,
    Coverage,
    ConceptSet,
    RelationBenchmark,
    LinkBenchmark,
    CaseStudy,
)


def kind_of(path: str | Path) -> type[Benchmark]:
    """The kind of benchmark that a path holds; what it is shows in its names and content.

    BadInput where no kind takes it, or it cannot be read.
    """
    found = Found(Path(path))
    for one in BENCHMARKS:
        if one.claims(found):
            return one
    for one in BENCHMARKS:
        if one.would_take(found):
            return one
    known = textwrap.indent("\n".join(one.formats for one in BENCHMARKS), "  ")
    formats = f"expected one of\n{known}"
    if found.is_folder:
        held = ", ".join(sorted(child.name for child in found.path.iterdir())[:8]) or "nothing"
        raise BadInput(f"{path}: found a folder with {held}; {formats}")
    number, fields = tab_separated(found.path)[0]
    raise BadInput(f"{path}:{number}: found {len(fields)} columns; {formats}")


def read_benchmark(
    name: str,
    path: str | Path,
    *,
    dictionary: Dictionary | None = None,
    retired_cuis: RetiredCuis | None = None,
    options: Options | None = None,
) -> Benchmark:
    """Reads a benchmark of any kind.

    Args:
      name: under which results are reported.
      path: a file or a folder, or one of the paper's case studies.
      dictionary: searched in place of the benchmark's own; of relations, what names the concepts.
      retired_cuis: gold CUIs and those of the dictionary are replaced by what they were merged
        into; of relations, what a retired concept is named after; of pairs and concepts, what a
        CUI without a concept vector is looked up under.
      options: of all kinds; None: their defaults.

    Returns:
      A `Benchmark`, of the kind that takes the path.

    Raises:
      BadInput: no known format, a broken row, no dictionary, or no mention whose gold concept is
        in the dictionary.
    """
    given = Given(name, Path(path), dictionary, retired_cuis, options or Options())
    return kind_of(path).read(given)


def score(
    benchmark: Benchmark,
    vectors: Vectors,
    encoder: EncoderRecord,
    options: Options | None = None,
) -> EvaluationRecord:
    """Scores one benchmark; of word vectors, counts the terms that have some of their words only.

    Args:
      options: of all kinds; None: their defaults.

    Raises:
      BadInput: concept vectors for a benchmark that has only terms, or vectors that cannot be used.
      Stopped: a signal asked for it.
    """
    record = benchmark.score(vectors, encoder, options or Options())
    if not isinstance(vectors, WordVectors):
        return record
    partly = vectors.partly_known(benchmark.keys(TERMS))
    how = "distinct terms of which a word has no vector: the mean is over the other words"
    return replace(
        record,
        counts={**record.counts, "partly_known": partly},
        scoring={**record.scoring, "partly_known": how},
    )


def _makers_of_tables() -> dict[str, type[Benchmark]]:
    """The class that makes the table for each kind of record: the first of several."""
    makers: dict[str, type[Benchmark]] = {}
    for one in BENCHMARKS:
        makers.setdefault(one.kind, one)
    return makers


def published_for(name: str) -> list[PublishedRow]:
    """The papers' rows of the benchmark that a name such as "cadec" or "my PsyTar" speaks of."""
    return [row for one in _makers_of_tables().values() for row in rows_for(name, one.published)]


def options_with(**chosen: Any) -> Options:
    """The options of all kinds: those that were chosen, and the defaults of the others."""
    own = tuple(dict.fromkeys(one.options for one in BENCHMARKS if one.options is not Options))
    of_all: type[Options] = dataclass(frozen=True, kw_only=True)(type("OptionsOfAll", own, {}))
    return of_all(**chosen)


# -------------------------------------------------------------------------------------------------
# Tables of records, one for each kind of benchmark, and tables as text.


def print_records(records: Sequence[EvaluationRecord], options: Options | None = None) -> None:
    """Prints the tables of `tables_of`, with the encoder of each row behind it."""
    for number, (header, rows) in enumerate(tables_of(records, options)):
        if number:
            print()
        named = [replace(row, cells=[*row.cells, _named(row)]) for row in rows]
        print_table([*header, _ENCODER], named)


_ENCODER = "encoder"  # the head of the column


def _named(row: Row) -> str:
    """The encoder of a row; a published row names its own in the first cell."""
    return "" if row.published else row.encoder


def tables_of(records: Sequence[EvaluationRecord], options: Options | None = None) -> list[Table]:
    """A table for each kind of benchmark that there is: benchmarks x poolings.

    Where gold concepts are unreachable, a second row has the scores of the other mentions. Below
    the rows of a benchmark whose name says that it is one of the papers' (cadec, psytar, mantra,
    mcsm, ddbrc, quaero) are the papers' own, marked as published.

    Args:
      records: of any kinds.
      options: of all kinds, such as k of acc@k; None: their defaults.
    """
    chosen, makers = options or Options(), _makers_of_tables()
    by_kind = {kind: [record for record in records if record.kind == kind] for kind in makers}
    return [makers[kind].table(own, chosen) for kind, own in by_kind.items() if own]


def print_table(header: list[str], rows: list[Row]) -> None:
    """Prints columns as wide as their longest cell: names left, numbers right.

    Scores stand below scores, whether or not they have an interval.
    """
    lines = [_printed_cells(row) for row in rows]
    for column in range(2, len(header)):
        sure = [PLUS_MINUS + line[column].partition(PLUS_MINUS)[2] for line in lines]
        width = max((len(one) for one in sure if one != PLUS_MINUS), default=0)
        for line, one in zip(lines, sure, strict=True):
            score = line[column].partition(PLUS_MINUS)[0]
            line[column] = score + f"{'' if one == PLUS_MINUS else one:<{width}}"
    widths = [max(len(line[column]) for line in (header, *lines)) for column in range(len(header))]
    for cells in (header, ["-" * width for width in widths], *lines):
        line = [
            cell.ljust(width) if column < 2 or name == _ENCODER else cell.rjust(width)
            for column, (name, cell, width) in enumerate(zip(header, cells, widths, strict=True))
        ]
        print("  ".join(line).rstrip())


def _printed_cells(row: Row) -> list[str]:
    """The cells of a row; a published row is marked in its first cell."""
    if not row.published:
        return [*row.cells]
    label = f"{row.cells[0]}: {row.encoder} (published, {row.published})"
    return [label, *row.cells[1:]]
