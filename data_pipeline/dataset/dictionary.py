"""A table, a dataset folder or MRCONSO.RRF in, the dictionary of terms and concepts out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from data_pipeline.dataset.dictionaries.choice import Choice
from data_pipeline.dataset.dictionaries.of_dataset import rows_of_dataset
from data_pipeline.dataset.dictionaries.of_medic import is_medic, rows_of_medic
from data_pipeline.dataset.dictionaries.of_release import rows_of_release
from data_pipeline.dataset.dictionaries.of_table import rows_of_table, terms_first
from data_pipeline.dataset.dictionaries.rows import AboutConcept as AboutConcept
from data_pipeline.dataset.dictionaries.rows import Rows
from data_pipeline.files.rows import (
    CONCEPT_SEPARATOR,
    distinct_rows,
    double_piped,
    is_double_piped,
    split_concepts,
    two_columns,
)
from data_pipeline.process.errors import BadInput
from data_pipeline.terminology.retired_cuis import RetiredCuis


@dataclass(frozen=True)
class Dictionary:
    """Terms and the concept of each; a string may occur once per concept that has it.

    `retired` of the terms have a concept that stands in for a retired one. `languages` has one and
    `vocabularies` one or more for each term, where the source tells. `chosen` is for the record:
    how the terms were chosen from a release or a dataset, and of a dataset what it was made of.
    `dataset` is the folder of that. `about_concepts` is what the source tells of the concepts, and
    `formerly` under which identifier it does of those that stand in for a retired one.
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
    formerly: Mapping[str, str] = field(default_factory=dict)

    def about(self, concept: str) -> AboutConcept:
        """What is known of a concept; its preferred name is at least its first term."""
        about = self.about_concepts
        found = about.get(concept) or about.get(self.formerly.get(concept, concept))
        return found or AboutConcept(self._first_terms[concept])

    @cached_property
    def _first_terms(self) -> dict[str, str]:
        first: dict[str, str] = {}
        for _, term, concept in self.pairs():
            first.setdefault(concept, term)
        return first

    def knowing(self, concepts: Iterable[str]) -> "Dictionary":
        """The same, which knows these concepts too, if only by their identifiers."""
        unknown = dict.fromkeys(set(concepts) - self.concept_set, AboutConcept(""))
        return replace(self, about_concepts={**unknown, **self.about_concepts})

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
        retired = [concept for concept in self.concept_set if retired_cuis.has(concept)]
        return replace(
            self,
            concepts=now,
            retired=sum(map(retired_cuis.has, self.concepts)),
            formerly={retired_cuis.now(concept): concept for concept in sorted(retired)},
        )


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
    types: Sequence[str] | None = None,
    *,
    raw: bool = False,
) -> Dictionary:
    """Reads a dictionary.

    Args:
      path: a TSV file of term<TAB>CUI; a table (.csv, .tsv, .xlsx) whose header names the columns
        of terms, of concepts, and more (`term_table.NAMES`), in any order; a file of CUI||name;
        MEDIC, id|other ids||name|synonym|...; a dataset folder as `data_pipeline.build` makes it;
        or the MRCONSO.RRF of a release, or .gz.
      languages: of a dataset, a release, or a table with such a column, keep the terms in these
        only, such as ["ENG"].
      sources: of these, keep the terms of these vocabularies only, such as ["MSH"]. A term of a
        dataset has one language, the most wanted, and the vocabularies of its string in all.
      concepts_of: of these, keep the concepts that these vocabularies have, with all their terms
        of the languages and sources above.
      types: of these, keep the concepts of these semantic types, such as ["T047"], ["Disease or
        Syndrome"] or both in one string, in whatever case.
      raw: of a dataset, the strings as its source writes them, in place of the terms that they
        became when they were cleaned. A release and a file have no others. Use it to look terms up.

    Returns:
      the dictionary. For a dataset, a release and a table, `about` says the preferred name of a
      concept (in the languages above, where it has one in these), its codes in the sources above,
      and its semantic types; of a release those in the MRSTY.RRF beside it.

    Raises:
      BadInput: none of these, a broken row, a language, source or type that is not there, or a
        choice that leaves no term.
    """
    path = Path(path)
    choice = Choice(*(tuple(asked or ()) for asked in (languages, sources, concepts_of, types)))
    is_release = path.name.upper().startswith("MRCONSO.RRF")
    if path.is_dir() and not (path / "manifest.json").is_file():
        raise BadInput(
            f"{path}: found a folder without manifest.json; expected a dictionary: a TSV file of "
            "term<TAB>CUI, a dataset folder made by `python -m data_pipeline.build`, or the "
            "MRCONSO.RRF of a release"
        )
    if is_release or path.is_dir():
        of = rows_of_release if is_release else rows_of_dataset
        read: Rows | None = of(path, choice, raw=raw)
    else:
        read = rows_of_table(path, choice)
    if read is not None:
        return Dictionary(
            read.terms,
            read.concepts,
            choice.named(path),
            languages=read.languages,
            vocabularies=read.vocabularies,
            chosen=choice.record() | read.made_of,
            dataset=path if path.is_dir() else None,
            about_concepts=read.about_concepts,
        )
    for option, asked in choice.options().items():
        if asked:
            raise BadInput(
                f"{path}: found {option} {' '.join(asked)}; expected a dataset folder or the "
                "MRCONSO.RRF of a release, or a table whose header names such a column (language, "
                f"vocabulary, semantic_type): give one of them, or no {option}"
            )
    if is_double_piped(path):
        if is_medic(path):
            medic = rows_of_medic(path)
            return Dictionary(
                medic.terms, medic.concepts, str(path), about_concepts=medic.about_concepts
            )
        cuis, names = zip(*double_piped(path, 2, "CUI||name"), strict=True)
        return Dictionary(list(names), list(cuis), str(path))
    rows = terms_first(two_columns(path, "term<TAB>CUI"), path)
    return Dictionary([term for term, _ in rows], [cui for _, cui in rows], str(path))
