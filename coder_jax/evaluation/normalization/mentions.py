"""Mentions in a TSV of mention<TAB>CUI, several gold CUIs joined with "|", with a header or not.

With a header there may be other columns: language says that of each mention, for its cut-offs.

Or a folder with mentions.tsv and dictionary.tsv, such as the heldout/ of a dataset.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from coder_jax.evaluation.benchmark import Found, Given
from coder_jax.evaluation.normalization.benchmark import NormalizationBenchmark, NormalizationFold
from data_pipeline.dataset.dictionary import Dictionary, read_dictionary
from data_pipeline.process.errors import BadInput
from data_pipeline.sources.mentions import mention_languages, mention_rows, names_mentions


@dataclass(frozen=True)
class Mentions(NormalizationBenchmark):
    """One fold, of a file or a folder."""

    formats: ClassVar[str] = (
        "mentions: a TSV file of mention<TAB>CUI, or a folder with mentions.tsv and dictionary.tsv"
    )
    about: ClassVar[str] = """\
mentions  a TSV file of mention<TAB>CUI (several gold CUIs joined with "|"), or the heldout/
          folder of a dataset. Looked up in --dictionary, or else in the dictionary.tsv beside it.
          With a header mention, CUI, language there are cut-offs for each language.\
"""

    @classmethod
    def claims(cls, found: Found) -> bool:
        return found.holds("mentions.tsv") or names_mentions(found.header)

    @classmethod
    def would_take(cls, found: Found) -> bool:
        return len(found.first_row) == 2

    @classmethod
    def brings_dictionary(cls, path: Path) -> bool:
        return path.is_dir()

    @classmethod
    def read(cls, given: Given) -> Self:
        path = given.path / "mentions.tsv" if given.path.is_dir() else given.path
        return cls.of_folds(given, [read_mentions(path, given.dictionary)], path=path)


def read_mentions(path: Path, dictionary: Dictionary | None) -> NormalizationFold:
    """A TSV file of mention<TAB>CUI, and the dictionary given or beside it.

    Raises:
      BadInput: a broken row, or no dictionary.
    """
    rows = mention_rows(path)
    beside = path.parent / "dictionary.tsv"
    if dictionary is None:
        if not beside.is_file():
            raise BadInput(
                f"{path}: found mentions and no dictionary to search; expected {beside}, or "
                "--dictionary with a TSV file of term<TAB>CUI or a dataset folder"
            )
        dictionary = read_dictionary(beside)
    mentions, gold = [row[0] for row in rows], [row[1] for row in rows]
    return NormalizationFold("", mentions, gold, dictionary, mention_languages(path))
