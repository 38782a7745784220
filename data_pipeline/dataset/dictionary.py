"""A TSV file, a dataset folder or MRCONSO.RRF in, the dictionary of terms and concepts out."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from data_pipeline.files.rows import (
    CONCEPT_SEPARATOR,
    distinct_rows,
    double_piped,
    is_double_piped,
    split_concepts,
    two_columns,
)
from data_pipeline.process.errors import BadInput
from data_pipeline.sources.rrf import read_rrf
from data_pipeline.terminology.filters import Filters, some, term_drop_reason
from data_pipeline.terminology.retired_cuis import RetiredCuis

# Of a dataset's manifest, what a record of its terms says.
DATASET = ("name", "release", "filters", "cleaning", "content_hash")


class AboutConcept(NamedTuple):
    """What a dictionary says of a concept."""

    preferred: str  # its preferred name, as the source writes it
    codes: tuple[tuple[str, str], ...] = ()  # (vocabulary, code there)
    types: tuple[str, ...] = ()  # semantic types, such as "T047 Disease or Syndrome"


@dataclass(frozen=True)
class Dictionary:
    """Terms and the concept of each; a string may occur once per concept that has it.

    `retired` of the terms have a concept that stands in for a retired one. `languages` has one and
    `vocabularies` one or more for each term, where the source tells. `chosen` is for the record:
    how the terms were chosen from a release or a dataset, and of a dataset what it was made of.
    `dataset` is the folder of that. `about_concepts` is what the source tells of the concepts.
    """

    terms: list[str]
    concepts: list[str]
    source: str
    retired: int = 0
    languages: list[str] | None = None
    vocabularies: list[tuple[str, ...]] | None = None
    chosen: dict[str, Any] = field(default_factory=dict)
    dataset: Path | None = None
    about_concepts: Mapping[str, AboutConcept] = field(default_factory=dict)

    def about(self, concept: str) -> AboutConcept:
        """What is known of a concept; its preferred name is at least its first term."""
        return self.about_concepts.get(concept) or AboutConcept(self._first_terms[concept])

    @cached_property
    def _first_terms(self) -> dict[str, str]:
        first: dict[str, str] = {}
        for _, term, concept in self.pairs():
            first.setdefault(concept, term)
        return first

    def pairs(self) -> Iterator[tuple[int, str, str]]:
        """(row, term, concept), of a row with joined concepts once for each of them."""
        for row, (term, joined) in enumerate(zip(self.terms, self.concepts, strict=True)):
            for concept in split_concepts(joined):
                yield row, term, concept

    @cached_property
    def concept_set(self) -> frozenset[str]:
        return frozenset(concept for _, _, concept in self.pairs())

    @cached_property
    def description(self) -> dict[str, Any]:
        """What a record says of it; the hash is of the distinct rows, whatever their order."""
        rows_hash, rows = distinct_rows(zip(self.terms, self.concepts, strict=True))
        return {
            "source": self.source,
            "content_hash": rows_hash,
            "terms": rows,
            "concepts": len(self.concept_set),
            "retired": self.retired,
            **self.chosen,
        }

    def concepts_of_terms(self) -> dict[str, str]:
        """Each distinct term and its concepts, joined, each once."""
        held: dict[str, str] = {}
        for term, joined in zip(self.terms, self.concepts, strict=True):
            if term in held:
                both = f"{held[term]}{CONCEPT_SEPARATOR}{joined}".split(CONCEPT_SEPARATOR)
                joined = CONCEPT_SEPARATOR.join(dict.fromkeys(both))
            held[term] = joined
        return held

    def with_successors(self, retired_cuis: RetiredCuis) -> "Dictionary":
        """The same terms, with the concepts as they are called today: merged ones become one."""
        now = [retired_cuis.now(joined) for joined in self.concepts]
        return replace(self, concepts=now, retired=sum(map(retired_cuis.has, self.concepts)))


def union(dictionaries: Sequence[Dictionary]) -> Dictionary:
    """The rows of all of them; one that several folds share counts once."""
    first, *more = {id(one): one for one in dictionaries}.values()
    if not more:
        return first
    sources = len({one.source for one in (first, *more)})
    return Dictionary(
        [term for one in (first, *more) for term in one.terms],
        [concept for one in (first, *more) for concept in one.concepts],
        first.source + (f" and {sources - 1} more" if sources > 1 else ""),
        sum(one.retired for one in (first, *more)),
        chosen=first.chosen,
    )


def read_dictionary(
    path: str | Path,
    languages: Sequence[str] | None = None,
    sources: Sequence[str] | None = None,
    concepts_of: Sequence[str] | None = None,
) -> Dictionary:
    """Reads a dictionary.

    Args:
      path: a TSV file of term<TAB>CUI, a file of CUI||name, a dataset folder as
        `data_pipeline.build` makes it, or the MRCONSO.RRF of a release, also as .gz.
      languages: of a dataset or a release, keep the terms in these only, such as ["ENG"].
      sources: of either, keep the terms of these vocabularies only, such as ["MSH"]. A term of a
        dataset has one language, the most wanted, and the vocabularies of its string in all.
      concepts_of: of either, keep the concepts that these vocabularies have, with all their terms
        of the languages and sources above.

    Raises:
      BadInput: none of these, a broken row, a language or source that is not there, or a choice
        that leaves no term.
    """
    path = Path(path)
    choice = _Choice(*(tuple(asked or ()) for asked in (languages, sources, concepts_of)))
    if path.name.upper().startswith("MRCONSO.RRF"):
        return _dictionary_of_release(path, choice)
    if path.is_dir():
        return _dictionary_of_dataset(path, choice)
    for option, asked in choice.options().items():
        if asked:
            raise BadInput(
                f"{path}: found {option} {' '.join(asked)}; expected a dataset folder or the "
                "MRCONSO.RRF of a release, as only they say the language and the sources of a "
                f"term: give one of them, or no {option}"
            )
    if is_double_piped(path):
        cuis, names = zip(*double_piped(path, 2, "CUI||name"), strict=True)
        return Dictionary(list(names), list(cuis), str(path))
    rows = two_columns(path, "term<TAB>CUI")
    return Dictionary([term for term, _ in rows], [cui for _, cui in rows], str(path))


@dataclass(frozen=True)
class _Choice:
    """Of a release or a dataset, the terms to take; what is empty chooses all."""

    languages: tuple[str, ...]
    sources: tuple[str, ...]
    concepts_of: tuple[str, ...]

    def options(self) -> dict[str, tuple[str, ...]]:
        """The options of the commands, for messages."""
        return {
            "--dictionary-languages": self.languages,
            "--dictionary-sources": self.sources,
            "--dictionary-concepts-of": self.concepts_of,
        }

    def check(self, languages: Sequence[str], vocabularies: Sequence[str], path: Path) -> None:
        """BadInput for a value that no term has."""
        there = (languages, vocabularies, vocabularies)
        for (option, asked), known in zip(self.options().items(), there, strict=True):
            if missing := sorted(set(asked) - set(known)):
                raise BadInput(
                    f"{option} {' '.join(missing)}: no term of {path} has it; it has {some(known)}"
                )

    def check_left(self, terms: int, path: Path) -> None:
        """BadInput for a choice that leaves no term."""
        if not terms:
            asked = [option for option, values in self.options().items() if values]
            other = f"other values for {' and '.join(asked)}" if asked else "another dictionary"
            raise BadInput(
                f"{path}: found no term of the choice, suppressed ones aside; give {other}"
            )

    def named(self, path: Path) -> str:
        """The path, and what is chosen of it."""
        return " ".join([str(path), *(one for asked in self.options().values() for one in asked)])

    def record(self) -> dict[str, list[str]]:
        """What a record of the dictionary says."""
        return {
            "languages": list(self.languages),
            "vocabularies": list(self.sources),
            "concepts_of": list(self.concepts_of),
        }


def _dictionary_of_release(path: Path, choice: _Choice) -> Dictionary:
    """Terms that are not suppressed, as they stand; of each concept the preferred one first."""
    filters = Filters(languages=choice.languages, sources=choice.sources)
    with tempfile.TemporaryDirectory() as scratch:
        atoms = read_rrf(path, Path(scratch)).atoms
        columns = ("language", "source")
        values = atoms.select(columns).unique().collect()
        there = [values[one].unique().sort().to_list() for one in columns]
        choice.check(there[0], there[1], path)
        whole = Filters(sources=choice.concepts_of)
        concepts = atoms.filter(term_drop_reason(whole).is_null()).select("cui").unique()
        kept = (
            atoms.filter(term_drop_reason(filters).is_null())
            .join(concepts, on="cui", how="semi", maintain_order="left")
            .sort("cui", "rank", maintain_order=True)
            .group_by("cui", "term", maintain_order=True)
            .agg(pl.first("language"), pl.col("source").unique().sort())
            .collect()
        )
    choice.check_left(kept.height, path)
    return Dictionary(
        kept["term"].to_list(),
        kept["cui"].to_list(),
        choice.named(path),
        languages=kept["language"].to_list(),
        vocabularies=_shared(
            one for part in kept.iter_slices() for one in part["source"].to_list()
        ),
        chosen=choice.record(),
    )


def _dictionary_of_dataset(path: Path, choice: _Choice) -> Dictionary:
    """Terms as they were cleaned for training; of each concept the preferred one first."""
    if not (path / "manifest.json").is_file():
        raise BadInput(
            f"{path}: found a folder without manifest.json; expected a dictionary: a TSV file of "
            "term<TAB>CUI, a dataset folder made by `python -m data_pipeline.build`, or the "
            "MRCONSO.RRF of a release"
        )
    # Only here is TensorFlow needed, to read the records of the dataset.
    from data_pipeline.dataset.store import open_dataset

    dataset = open_dataset(path, strings=True)
    languages, vocabularies = dataset.manifest["languages"], dataset.manifest["vocabularies"]
    choice.check(languages, vocabularies, path)
    cuis, terms = dataset.cuis or [], dataset.terms or []
    start, source_of = dataset.vocabulary_start, dataset.term_vocabularies
    assert start is not None and source_of is not None, "they come with the strings"
    concept_of_term = np.repeat(np.arange(len(cuis)), np.diff(dataset.term_start))
    term_of_source = np.repeat(np.arange(len(terms)), np.diff(start))

    def among(values: np.ndarray, known: list[str], asked: tuple[str, ...]) -> np.ndarray:
        return np.isin(values, [known.index(one) for one in asked or known])

    is_asked = among(source_of, vocabularies, choice.sources)
    of_concept = term_of_source[among(source_of, vocabularies, choice.concepts_of)]
    is_chosen = among(dataset.term_language, languages, choice.languages)
    is_chosen &= np.isin(np.arange(len(terms)), term_of_source[is_asked])
    is_chosen &= np.isin(concept_of_term, concept_of_term[of_concept])
    chosen = np.flatnonzero(is_chosen)
    choice.check_left(len(chosen), path)
    names = [vocabularies[one] for one in source_of[is_asked]]
    ends = np.cumsum(np.bincount(term_of_source[is_asked], minlength=len(terms)))
    begins = np.concatenate([[0], ends[:-1]])
    made_of = {f"dataset_{name}": dataset.manifest[name] for name in DATASET}
    return Dictionary(
        [terms[term] for term in chosen],
        [cuis[concept] for concept in concept_of_term[chosen]],
        choice.named(path),
        languages=[languages[language] for language in dataset.term_language[chosen]],
        vocabularies=_shared(names[begins[term] : ends[term]] for term in chosen),
        chosen=choice.record() | made_of | {"languages": list(choice.languages or languages)},
        dataset=path,
    )


def _shared(sets: Iterable[Iterable[str]]) -> list[tuple[str, ...]]:
    """The sets as tuples, equal ones as one object: the terms of a UMLS have few different ones."""
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    return [known.setdefault(one, one) for one in map(tuple, sets)]
