"""All benchmarks, a line each: which kind a path is of, reading it, and scoring it.

To add one, write its class (see `benchmark.Benchmark`) and put it into BENCHMARKS.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from coder_jax.evaluation.benchmark import Benchmark, Flag, Found, Given, Options
from coder_jax.evaluation.concepts.case_studies import CaseStudy
from coder_jax.evaluation.concepts.concept_set import ConceptSet
from coder_jax.evaluation.given_groups.quaero import Quaero
from coder_jax.evaluation.multiple_names.benchmark import MultipleNames
from coder_jax.evaluation.names.annotated_text import AnnotatedText
from coder_jax.evaluation.names.coverage import Coverage
from coder_jax.evaluation.normalization.folds import Folds
from coder_jax.evaluation.normalization.mantra import Mantra
from coder_jax.evaluation.normalization.mentions import Mentions
from coder_jax.evaluation.normalization.xl_bel import XlBel
from coder_jax.evaluation.record import EncoderRecord, EvaluationRecord
from coder_jax.evaluation.relations.link_benchmark import LinkBenchmark
from coder_jax.evaluation.relations.relation_benchmark import RelationBenchmark
from coder_jax.evaluation.results.published import PublishedRow, rows_for
from coder_jax.evaluation.similarity.term_pairs import SimilarityBenchmark
from coder_jax.evaluation.vectors.vectors import TERMS, Vectors
from coder_jax.evaluation.vectors.words_and_concepts import WordVectors
from data_pipeline.dataset.dictionary import Dictionary
from data_pipeline.files.rows import tab_separated
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.retired_cuis import RetiredCuis

# In the order of help, messages and tables. A path goes to the first that claims it, else to the
# first that would take it.
BENCHMARKS: tuple[type[Benchmark], ...] = (
    Mentions,
    Folds,
    XlBel,
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
    raise BadInput(f"{path}:{number}: found {len(fields)} tab-separated columns; {formats}")


def read_benchmark(
    name: str,
    path: str | Path,
    *,
    dictionary: Dictionary | None = None,
    retired_cuis: RetiredCuis | None = None,
    **options: Any,
) -> Benchmark:
    """Reads a benchmark of any kind.

    Args:
      name: under which results are reported.
      path: a file or a folder, or one of the paper's case studies.
      dictionary: searched in place of the benchmark's own; of relations, what names the concepts.
      retired_cuis: gold CUIs and those of the dictionary are replaced by what they were merged
        into; of relations, what a retired concept is named after; of pairs and concepts, what a
        CUI without a concept vector is looked up under.
      options: values of flags, such as types; those that are not given have their defaults.

    Returns:
      A `Benchmark`, of the kind that takes the path.

    Raises:
      BadInput: no known format, a broken row, no dictionary, or no mention whose gold concept is
        in the dictionary.
    """
    given = Given(name, Path(path), dictionary, retired_cuis, options_with(options))
    return kind_of(path).read(given)


def score(
    benchmark: Benchmark, vectors: Vectors, encoder: EncoderRecord, **options: Any
) -> EvaluationRecord:
    """Scores one benchmark; of word vectors, counts the terms that have some of their words only.

    Args:
      options: values of flags, such as neighbours; those that are not given have their defaults.

    Raises:
      BadInput: concept vectors for a benchmark that has only terms, or vectors that cannot be used.
      Stopped: a signal asked for it.
    """
    record = benchmark.score(vectors, encoder, options_with(options))
    if not isinstance(vectors, WordVectors):
        return record
    partly = vectors.partly_known(benchmark.keys(TERMS))
    how = "distinct terms of which a word has no vector: the mean is over the other words"
    return replace(
        record,
        counts={**record.counts, "partly_known": partly},
        scoring={**record.scoring, "partly_known": how},
    )


def makers_of_tables() -> dict[str, type[Benchmark]]:
    """For each kind of records the class that makes its table: the first of several."""
    makers: dict[str, type[Benchmark]] = {}
    for one in BENCHMARKS:
        makers.setdefault(one.kind, one)
    return makers


def published_for(name: str) -> list[PublishedRow]:
    """The papers' rows of the benchmark that a name such as "cadec" or "my PsyTar" speaks of."""
    return [row for one in makers_of_tables().values() for row in rows_for(name, one.published)]


def flags_by_heading() -> dict[str, list[Flag]]:
    """The flags of all kinds, under the headings of `--help`; one that kinds share comes once."""
    headings: dict[str, list[Flag]] = {}
    for one in BENCHMARKS:
        for flag in one.flags:
            under = headings.setdefault(one.flags_under, [])
            if flag not in under:
                under.append(flag)
    return headings


def all_flags() -> list[Flag]:
    """The flags of all kinds."""
    return [flag for flags in flags_by_heading().values() for flag in flags]


def options_with(chosen: Mapping[str, Any]) -> Options:
    """The options that were chosen, and the defaults of the others.

    ValueError for one that no kind has.
    """
    defaults = {"seed": 0} | {flag.option: flag.default for flag in all_flags()}
    if unknown := chosen.keys() - defaults.keys():
        raise ValueError(f"found the options {sorted(unknown)}; expected some of {[*defaults]}")
    return defaults | dict(chosen)
