"""A TSV file or a built dataset folder in, the dictionary of terms and concepts to search out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from coder_jax.evaluation.retired_cuis import RetiredCuis
from coder_jax.evaluation.rows import CONCEPT_SEPARATOR, content_hash, two_columns
from data_pipeline.errors import BadInput


@dataclass(frozen=True)
class Dictionary:
    """Terms and the concept of each; a string may occur once per concept that has it.

    `retired` of the terms have a concept that stands in for a retired one.
    """

    terms: list[str]
    concepts: list[str]
    source: str
    retired: int = 0

    @cached_property
    def concept_set(self) -> frozenset[str]:
        return frozenset(
            concept for held in self.concepts for concept in held.split(CONCEPT_SEPARATOR)
        )

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of the distinct (term, concept) rows, whatever their order."""
        return content_hash(set(zip(self.terms, self.concepts, strict=True)))

    def with_successors(self, retired_cuis: RetiredCuis) -> "Dictionary":
        """The same terms, with the concepts as they are called today: merged ones become one."""
        now = [retired_cuis.now(joined) for joined in self.concepts]
        return replace(self, concepts=now, retired=sum(map(retired_cuis.has, self.concepts)))


def read_dictionary(path: str | Path, languages: Sequence[str] | None = None) -> Dictionary:
    """Reads a dictionary.

    Args:
      path: a TSV file of term<TAB>CUI, or a dataset folder as `data_pipeline.build` makes it.
      languages: of a dataset, keep the terms in these only, such as ["ENG"].

    Raises:
      BadInput: neither of the two, a broken row, or a language that the dataset does not have.
    """
    path = Path(path)
    if path.is_dir():
        return _dictionary_of_dataset(path, languages)
    if languages:
        raise BadInput(
            f"{path}: found a file, and a choice of languages ({', '.join(languages)}); expected a "
            "dataset folder: only its terms have languages"
        )
    rows = two_columns(path, "term<TAB>CUI")
    return Dictionary([term for term, _ in rows], [cui for _, cui in rows], str(path))


def _dictionary_of_dataset(path: Path, languages: Sequence[str] | None) -> Dictionary:
    if not (path / "manifest.json").is_file():
        raise BadInput(
            f"{path}: found a folder without manifest.json; expected a dictionary: a TSV file of "
            "term<TAB>CUI, or a dataset folder made by `python -m data_pipeline.build`"
        )
    # Only here is TensorFlow needed, to read the records of the dataset.
    from data_pipeline.store import open_dataset

    dataset = open_dataset(path, strings=True)
    known = list(dataset.manifest["languages"])
    unknown = sorted(set(languages or ()) - set(known))
    if unknown:
        raise BadInput(
            f"{path}: found no terms in {', '.join(unknown)}; the dataset has {', '.join(known)}"
        )
    kept = [known.index(language) for language in languages or known]
    cuis, terms = dataset.cuis or [], dataset.terms or []
    concept_of_term = np.repeat(np.arange(len(cuis)), np.diff(dataset.term_start))
    chosen = np.flatnonzero(np.isin(dataset.term_language, kept))
    return Dictionary(
        [terms[term] for term in chosen],
        [cuis[concept] for concept in concept_of_term[chosen]],
        str(path),
    )
