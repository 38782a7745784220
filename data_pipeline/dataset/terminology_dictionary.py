"""A dataset folder or the MRCONSO.RRF of a release in, its dictionary out."""

from __future__ import annotations

import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from data_pipeline.dataset.dictionary import AboutConcept, Dictionary
from data_pipeline.dataset.dictionary_choice import Choice
from data_pipeline.process.errors import BadInput
from data_pipeline.sources.rrf import read_rrf, read_types
from data_pipeline.terminology.filters import Filters, term_drop_reason
from data_pipeline.terminology.terminology import offsets

if TYPE_CHECKING:
    from data_pipeline.dataset.store import TripletDataset

Strings = Sequence[str] | pl.Series
# Of a dataset's manifest, what a record of its terms says.
DATASET = ("name", "release", "filters", "cleaning", "content_hash")


@dataclass(frozen=True)
class Columns:
    """What is known of concepts, as columns.

    Attributes:
      concepts, preferred: [C], identifiers in their order, and preferred names.
      code_start, code_vocabularies, codes: the codes of concept c are at the places
        code_start[c] .. code_start[c + 1] - 1; the vocabulary of each indexes `vocabularies`.
      type_start, types: likewise; types index `semantic_types`.
    """

    concepts: Strings
    preferred: Strings
    code_start: np.ndarray
    code_vocabularies: np.ndarray
    codes: Strings
    vocabularies: Sequence[str]
    type_start: np.ndarray
    types: np.ndarray
    semantic_types: Sequence[str]


class ConceptTable(Mapping[str, AboutConcept]):
    """What a source tells of its concepts: read when it is first asked for, and made one by one."""

    def __init__(self, read: Callable[[], Columns], sources: Sequence[str] = ()):
        """
        Args:
          read: gives the columns.
          sources: the vocabularies whose codes are told; none: all.
        """
        self.read, self.sources = read, frozenset(sources)

    @cached_property
    def columns(self) -> Columns:
        return self.read()

    def __getitem__(self, concept: str) -> AboutConcept:
        this = self.columns
        place = bisect_left(this.concepts, concept)
        if place == len(this.concepts) or this.concepts[place] != concept:
            raise KeyError(concept)
        coded = [
            (this.vocabularies[this.code_vocabularies[code]], this.codes[code])
            for code in range(this.code_start[place], this.code_start[place + 1])
        ]
        types = this.types[this.type_start[place] : this.type_start[place + 1]]
        return AboutConcept(
            this.preferred[place],
            tuple(pair for pair in coded if not self.sources or pair[0] in self.sources),
            tuple(this.semantic_types[one] for one in types),
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns.concepts)

    def __len__(self) -> int:
        return len(self.columns.concepts)


@contextmanager
def _tables(path: Path) -> Iterator[tuple[pl.LazyFrame, pl.LazyFrame | None]]:
    """Terms of a release that are not suppressed, and semantic types, as a `Source` has them."""
    with tempfile.TemporaryDirectory() as scratch:
        atoms = read_rrf(path, Path(scratch)).atoms
        yield atoms.filter(term_drop_reason(Filters()).is_null()), read_types(path, Path(scratch))


def dictionary_of_release(path: Path, choice: Choice, *, raw: bool) -> Dictionary:
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

    return Dictionary(
        kept["term"].to_list(),
        kept["cui"].to_list(),
        choice.named(path),
        languages=kept["language"].to_list(),
        vocabularies=_shared(
            one for part in kept.iter_slices() for one in part["source"].to_list()
        ),
        chosen=choice.record(),
        about_concepts=ConceptTable(read, choice.sources),
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


def dictionary_of_dataset(path: Path, choice: Choice, *, raw: bool) -> Dictionary:
    """Terms as they were cleaned for training, or, with `raw`, as their source writes them.

    Of each concept the preferred one comes first.
    """
    # Only here is TensorFlow needed, to read the records of the dataset.
    from data_pipeline.dataset.store import open_dataset

    dataset = open_dataset(path, strings=True, source=raw)
    languages, vocabularies = dataset.manifest["languages"], dataset.manifest["vocabularies"]
    choice.check(languages, vocabularies, path)
    types = choice.types_among(dataset.manifest["semantic_types"], path)
    cuis, strings = dataset.cuis or [], dataset.terms or []
    term_of_row = np.arange(len(strings))
    start, source_of = dataset.vocabulary_start, dataset.term_vocabularies
    if dataset.source is not None:
        term_of_row = np.repeat(term_of_row, np.diff(dataset.source.string_start))
        strings, source_of = dataset.source.strings, dataset.source.vocabularies
        start = dataset.source.vocabulary_start
    assert start is not None and source_of is not None, "they come with the strings"
    concept_of_row = _concept_of_term(dataset)[term_of_row]
    row_of_source = np.repeat(np.arange(len(strings)), np.diff(start))

    def among(values: np.ndarray, known: list[str], asked: tuple[str, ...]) -> np.ndarray:
        return np.isin(values, [known.index(one) for one in asked or known])

    is_asked = among(source_of, vocabularies, choice.sources)
    of_concept = row_of_source[among(source_of, vocabularies, choice.concepts_of)]
    is_chosen = among(dataset.term_language[term_of_row], languages, choice.languages)
    is_chosen &= np.isin(np.arange(len(strings)), row_of_source[is_asked])
    is_chosen &= np.isin(concept_of_row, concept_of_row[of_concept])
    if choice.types:
        of_type = np.repeat(np.arange(len(cuis)), np.diff(dataset.type_start))
        is_chosen &= np.isin(concept_of_row, of_type[np.isin(dataset.types, types)])
    chosen = np.flatnonzero(is_chosen)
    choice.check_left(len(chosen), path)
    names = [vocabularies[one] for one in source_of[is_asked]]
    ends = np.cumsum(np.bincount(row_of_source[is_asked], minlength=len(strings)))
    begins = np.concatenate([[0], ends[:-1]])
    now = _columns_of_dataset(dataset, choice.languages) if raw else None

    def read() -> Columns:
        return now or _columns_of_dataset(open_dataset(path, source=True), choice.languages)

    made_of = {f"dataset_{name}": dataset.manifest[name] for name in DATASET}
    return Dictionary(
        [strings[row] for row in chosen],
        [cuis[concept] for concept in concept_of_row[chosen]],
        choice.named(path),
        languages=[languages[dataset.term_language[term]] for term in term_of_row[chosen]],
        vocabularies=_shared(names[begins[row] : ends[row]] for row in chosen),
        chosen=choice.record()
        | made_of
        | {"languages": list(choice.languages or languages)}
        | ({"raw": True} if raw else {}),
        dataset=path,
        about_concepts=ConceptTable(read, choice.sources),
    )


def _concept_of_term(dataset: TripletDataset) -> np.ndarray:
    return np.repeat(np.arange(len(dataset.term_start) - 1), np.diff(dataset.term_start))


def _columns_of_dataset(dataset: TripletDataset, chosen: Sequence[str]) -> Columns:
    """What a dataset says of its concepts; their names in these languages, where they have any."""
    source, cuis = dataset.source, dataset.cuis
    assert source is not None and cuis is not None, "they were asked for"
    languages, named = dataset.manifest["languages"], dataset.term_start[:-1].copy()
    asked = [languages.index(one) for one in chosen or languages]
    terms = np.flatnonzero(np.isin(dataset.term_language, asked))[::-1]
    named[_concept_of_term(dataset)[terms]] = terms  # of a concept the first one, written last
    return Columns(
        concepts=cuis,
        preferred=[source.strings[one] for one in source.string_start[named]],
        code_start=source.code_start,
        code_vocabularies=source.code_vocabularies,
        codes=source.codes,
        vocabularies=dataset.manifest["vocabularies"],
        type_start=dataset.type_start,
        types=dataset.types,
        semantic_types=dataset.manifest["semantic_types"],
    )


def _shared(sets: Iterable[Iterable[str]]) -> list[tuple[str, ...]]:
    """The sets as tuples, equal ones as one object: the terms of a UMLS have few different ones."""
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    return [known.setdefault(one, one) for one in map(tuple, sets)]
