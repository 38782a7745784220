"""A dataset folder in, the rows of its dictionary out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from data_pipeline.dataset.dictionaries.choice import Choice
from data_pipeline.dataset.dictionaries.rows import Columns, ConceptTable, Rows, shared

if TYPE_CHECKING:
    from data_pipeline.dataset.store import TripletDataset

# Of a dataset's manifest, what a record of its terms says.
DATASET = ("name", "release", "filters", "cleaning", "content_hash")


def rows_of_dataset(path: Path, choice: Choice, *, raw: bool) -> Rows:
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
    made_of["languages"] = list(choice.languages or languages)
    return Rows(
        [strings[row] for row in chosen],
        [cuis[concept] for concept in concept_of_row[chosen]],
        [languages[dataset.term_language[term]] for term in term_of_row[chosen]],
        shared(names[begins[row] : ends[row]] for row in chosen),
        ConceptTable(read, choice.sources),
        made_of | ({"raw": True} if raw else {}),
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
