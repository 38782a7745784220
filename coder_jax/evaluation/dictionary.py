"""A TSV file, a dataset folder or MRCONSO.RRF in, the dictionary of terms and concepts out."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from coder_jax.evaluation.retired_cuis import RetiredCuis
from coder_jax.evaluation.rows import (
    CONCEPT_SEPARATOR,
    content_hash,
    double_piped,
    is_double_piped,
    two_columns,
)
from data_pipeline.errors import BadInput
from data_pipeline.filters import Filters, check_filter_values, term_drop_reason
from data_pipeline.rrf import read_rrf

# Of a dataset's manifest, what a record of its terms says.
DATASET = ("name", "release", "filters", "cleaning", "content_hash")


@dataclass(frozen=True)
class Dictionary:
    """Terms and the concept of each; a string may occur once per concept that has it.

    `retired` of the terms have a concept that stands in for a retired one. `languages` and
    `vocabularies` are those of each term, where the source tells. `chosen` is for the record: how
    the terms were chosen from a release or a dataset, and of a dataset what it was made of.
    `dataset` is the folder of that.
    """

    terms: list[str]
    concepts: list[str]
    source: str
    retired: int = 0
    languages: list[str] | None = None
    vocabularies: list[str] | None = None
    chosen: dict[str, Any] = field(default_factory=dict)
    dataset: Path | None = None

    def pairs(self) -> Iterator[tuple[int, str, str]]:
        """(row, term, concept), of a row with joined concepts once for each of them."""
        for row, (term, joined) in enumerate(zip(self.terms, self.concepts, strict=True)):
            for concept in joined.split(CONCEPT_SEPARATOR):
                yield row, term, concept

    @cached_property
    def concept_set(self) -> frozenset[str]:
        return frozenset(concept for _, _, concept in self.pairs())

    @cached_property
    def description(self) -> dict[str, Any]:
        """What a record says of it; the hash is of the distinct rows, whatever their order."""
        rows = set(zip(self.terms, self.concepts, strict=True))
        return {
            "source": self.source,
            "content_hash": content_hash(rows),
            "terms": len(rows),
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
      sources: of a release, keep the terms of these vocabularies only, such as ["MSH"].
      concepts_of: of a release, keep the concepts that these vocabularies have, with all their
        terms of the languages and sources above.

    Raises:
      BadInput: none of these, a broken row, or a language or source that is not there.
    """
    path = Path(path)
    if path.name.upper().startswith("MRCONSO.RRF"):
        return _dictionary_of_release(path, languages, sources, concepts_of)
    if asked := sources or concepts_of:
        option = "sources" if sources else "concepts-of"
        raise BadInput(
            f"{path}: found --dictionary-{option} {' '.join(asked)}; expected the MRCONSO.RRF of "
            "a release: only its rows have sources. For a dataset, choose when it is built: "
            "python -m data_pipeline.build --sources"
        )
    if path.is_dir():
        return _dictionary_of_dataset(path, languages)
    if languages:
        raise BadInput(
            f"{path}: found a file, and --dictionary-languages {' '.join(languages)}; expected a "
            "dataset folder or the MRCONSO.RRF of a release: only their terms have languages"
        )
    if is_double_piped(path):
        cuis, names = zip(*double_piped(path, 2, "CUI||name"), strict=True)
        return Dictionary(list(names), list(cuis), str(path))
    rows = two_columns(path, "term<TAB>CUI")
    return Dictionary([term for term, _ in rows], [cui for _, cui in rows], str(path))


def _dictionary_of_release(
    path: Path,
    languages: Sequence[str] | None,
    sources: Sequence[str] | None,
    concepts_of: Sequence[str] | None,
) -> Dictionary:
    """Terms that are not suppressed, as they stand; of each concept the preferred one first."""
    filters = Filters(languages=tuple(languages or ()), sources=tuple(sources or ()))
    with tempfile.TemporaryDirectory() as scratch:
        atoms = read_rrf(path, Path(scratch)).atoms
        columns = ("language", "source", "term_type")
        values = atoms.select(columns).unique().collect()
        check_filter_values(values, filters, "--dictionary-")
        if missing := sorted(set(concepts_of or ()) - set(values["source"])):
            raise BadInput(
                f"--dictionary-concepts-of {missing[0]}: no term of {path} has it; it has "
                f"{', '.join(sorted(set(values['source'])))}"
            )
        whole = Filters(sources=tuple(concepts_of or ()))
        concepts = atoms.filter(term_drop_reason(whole).is_null()).select("cui").unique()
        kept = (
            atoms.filter(term_drop_reason(filters).is_null())
            .join(concepts, on="cui", how="semi", maintain_order="left")
            .sort("cui", "rank", maintain_order=True)
            .select("cui", "term", "language", "source")
            .unique(["cui", "term"], keep="first", maintain_order=True)
            .collect()
        )
    if not kept.height:
        raise BadInput(
            f"{path}: found no term of the choice that is not suppressed; give other "
            "--dictionary-sources, --dictionary-languages or --dictionary-concepts-of, or none"
        )
    choice = {"languages": languages, "vocabularies": sources, "concepts_of": concepts_of}
    words = "".join(f" {' '.join(part)}" for part in choice.values() if part)
    return Dictionary(
        kept["term"].to_list(),
        kept["cui"].to_list(),
        f"{path}{words}",
        languages=kept["language"].to_list(),
        vocabularies=kept["source"].to_list(),
        chosen={name: list(part or ()) for name, part in choice.items()},
    )


def _dictionary_of_dataset(path: Path, languages: Sequence[str] | None) -> Dictionary:
    if not (path / "manifest.json").is_file():
        raise BadInput(
            f"{path}: found a folder without manifest.json; expected a dictionary: a TSV file of "
            "term<TAB>CUI, a dataset folder made by `python -m data_pipeline.build`, or the "
            "MRCONSO.RRF of a release"
        )
    # Only here is TensorFlow needed, to read the records of the dataset.
    from data_pipeline.store import open_dataset

    dataset = open_dataset(path, strings=True)
    known = list(dataset.manifest["languages"])
    unknown = sorted(set(languages or ()) - set(known))
    if unknown:
        raise BadInput(
            f"--dictionary-languages {' '.join(unknown)}: no term of {path} has it; the dataset "
            f"has {', '.join(known)}"
        )
    kept = [known.index(language) for language in languages or known]
    cuis, terms = dataset.cuis or [], dataset.terms or []
    concept_of_term = np.repeat(np.arange(len(cuis)), np.diff(dataset.term_start))
    chosen = np.flatnonzero(np.isin(dataset.term_language, kept))
    return Dictionary(
        [terms[term] for term in chosen],
        [cuis[concept] for concept in concept_of_term[chosen]],
        str(path),
        languages=[known[language] for language in dataset.term_language[chosen]],
        chosen={
            "languages": list(languages or known),
            **{f"dataset_{name}": dataset.manifest[name] for name in DATASET},
        },
        dataset=path,
    )
