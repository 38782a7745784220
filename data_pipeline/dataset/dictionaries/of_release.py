"""The MRCONSO.RRF of a release in, the rows of its dictionary out."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl

from data_pipeline.dataset.dictionaries.choice import Choice
from data_pipeline.dataset.dictionaries.rows import Columns, ConceptTable, Rows, shared
from data_pipeline.process.errors import BadInput
from data_pipeline.sources.rrf import read_rrf, read_types
from data_pipeline.terminology.filters import Filters, term_drop_reason
from data_pipeline.terminology.terminology import offsets


@contextmanager
def _tables(path: Path) -> Iterator[tuple[pl.LazyFrame, pl.LazyFrame | None]]:
    """Terms of a release that are not suppressed, and semantic types, as a `Source` has them."""
    with tempfile.TemporaryDirectory() as scratch:
        atoms = read_rrf(path, Path(scratch)).atoms
        yield atoms.filter(term_drop_reason(Filters()).is_null()), read_types(path, Path(scratch))


def rows_of_release(path: Path, choice: Choice, *, raw: bool) -> Rows:
    """Terms that are not suppressed, as they stand; of each concept the preferred one first.

    With `raw`, what is known of the concepts is read at once: what is wrong with it is then said
    before the terms are used.
    """
    filters = Filters(languages=choice.languages, sources=choice.sources)
    with _tables(path) as (atoms, types):
        columns = ("language", "source")
        values = atoms.select(columns).unique().collect()
        there = [values[one].unique().sort().to_list() for one in columns]
        choice.check(there[0], there[1], path)
        whole = Filters(sources=choice.concepts_of)
        concepts = atoms.filter(term_drop_reason(whole).is_null()).select("cui").unique()
        if choice.types:
            concepts = concepts.join(_of_types(types, choice, path), on="cui", how="semi")
        kept = (
            atoms.filter(term_drop_reason(filters).is_null())
            .join(concepts, on="cui", how="semi", maintain_order="left")
            .sort("cui", "rank", maintain_order=True)
            .group_by("cui", "term", maintain_order=True)
            .agg(pl.first("language"), pl.col("source").unique().sort())
            .collect()
        )
        choice.check_left(kept.height, path)
        cuis = kept["cui"].unique().sort()
        now = _columns_of_release(atoms, types, cuis, choice) if raw else None

    def read() -> Columns:
        if now is not None:
            return now
        with _tables(path) as tables:
            return _columns_of_release(*tables, cuis, choice)

    return Rows(
        kept["term"].to_list(),
        kept["cui"].to_list(),
        kept["language"].to_list(),
        shared(one for part in kept.iter_slices() for one in part["source"].to_list()),
        ConceptTable(read, choice.sources),
        {},
    )


def _of_types(types: pl.LazyFrame | None, choice: Choice, path: Path) -> pl.LazyFrame:
    """The identifiers of concepts that have one of the semantic types of the choice."""
    if types is None:
        raise BadInput(
            f"--semantic-types {' '.join(choice.types)}: found no MRSTY.RRF beside {path}; "
            "expected it there, as it says the types of concepts"
        )
    known = types.select(pl.col("type").unique().sort()).collect()["type"].to_list()
    asked = [known[place] for place in choice.types_among(known, path)]
    return types.filter(pl.col("type").is_in(asked)).select("cui").unique()


def _columns_of_release(
    atoms: pl.LazyFrame, types: pl.LazyFrame | None, cuis: pl.Series, choice: Choice
) -> Columns:
    """What a release says of some concepts; their names in the languages of the choice."""
    numbers = pl.DataFrame({"cui": cuis}).with_row_index("concept").lazy()
    in_language = term_drop_reason(Filters(languages=choice.languages)).is_null()
    names = (
        atoms.filter(in_language)
        .join(numbers, on="cui", maintain_order="left")
        .group_by("concept")
        .agg(pl.col("term").get(pl.col("rank").arg_min()))
        .sort("concept")
    )
    coded = (
        atoms.filter(pl.col("code") != "")
        .join(numbers, on="cui")
        .select("concept", "source", "code")
        .unique()
        .sort("concept", "source", "code")
    )
    no_types = pl.LazyFrame(schema={"cui": pl.String, "type": pl.String})
    typed = (
        (no_types if types is None else types)
        .join(numbers, on="cui")
        .select("concept", "type")
        .unique()
        .sort("concept", "type")
    )
    preferred, codes, of_type = pl.collect_all([names, coded, typed])
    vocabularies = codes["source"].unique().sort().to_list()
    semantic_types = of_type["type"].unique().sort().to_list()
    return Columns(
        concepts=cuis,
        preferred=preferred["term"],
        code_start=offsets(codes["concept"].to_numpy(), len(cuis)),
        code_vocabularies=_places(codes["source"], vocabularies),
        codes=codes["code"],
        vocabularies=vocabularies,
        type_start=offsets(of_type["concept"].to_numpy(), len(cuis)),
        types=_places(of_type["type"], semantic_types),
        semantic_types=semantic_types,
    )


def _places(column: pl.Series, known: list[str]) -> np.ndarray:
    """int32: where in `known` each value is."""
    places = dict(zip(known, range(len(known)), strict=True))
    return column.replace_strict(places, return_dtype=pl.Int32).to_numpy()
