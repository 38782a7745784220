"""Lists of terms in, distinct terms by their language out: what word pieces are learnt from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from data_pipeline.dataset.dictionary import read_dictionary
from data_pipeline.dataset.mentions.store import MANIFEST, open_mentions
from data_pipeline.files.identity import MENTIONS, is_of_kind
from data_pipeline.files.rows import DOUBLE_PIPE, read_text
from data_pipeline.files.tables.table import is_workbook
from data_pipeline.process.errors import BadInput
from data_pipeline.sources.term_table import UNDETERMINED
from data_pipeline.terminology.cleaning.rules import clean

TABLES = (".csv", ".tsv", ".gz")
MOST_OF_A_TERM = 10_000  # characters; more is a text and no term


def read_terms(
    paths: Sequence[Path], languages: Sequence[str] = (), cleaning: str = "none"
) -> dict[str, list[str]]:
    """The terms of files and folders, each once in its language, as an encoder gets them.

    Args:
      paths: text files of a term in each line, whatever `read_dictionary` reads, and folders of
        mentions (their names and the mentions of their training split).
      languages: the terms in these alone.
      cleaning: rules that terms go through. Those of a dataset are cleaned already, and those of a
        folder of mentions have their own rules.

    Returns:
      language, UNDETERMINED where nothing tells -> its terms, in the order of their first place.

    Raises:
      BadInput: nothing that can be read, a language that is not there, or no term.
    """
    found: dict[str, dict[str, None]] = {}
    for path in paths:
        for language, terms in _terms_of(path, languages, cleaning).items():
            found.setdefault(language, {}).update(dict.fromkeys(filter(None, terms)))
    if not any(found.values()):
        raise BadInput(
            f"{', '.join(map(str, paths))}: found no term; expected a term in each line, a "
            "table of terms, a dataset or a folder of mentions"
        )
    longest = max((term for terms in found.values() for term in terms), key=len)
    if len(longest) > MOST_OF_A_TERM:
        raise BadInput(
            f"found a term of {len(longest):,} characters ({longest[:40]!r} ...); expected "
            f"at most {MOST_OF_A_TERM:,}: give a term in each line"
        )
    return {language: list(terms) for language, terms in sorted(found.items()) if terms}


def _terms_of(path: Path, languages: Sequence[str], cleaning: str) -> dict[str, list[str]]:
    """The terms of one file or folder by language, cleaned."""
    is_mentions = path.is_dir() and is_of_kind(path / MANIFEST, MENTIONS)
    if not (is_mentions or is_list(path)):
        dictionary = read_dictionary(path, languages)
        terms = dictionary.terms if path.is_dir() else cleaned(dictionary.terms, cleaning)
        if dictionary.languages is None:
            return {UNDETERMINED: terms}
        by_language: dict[str, list[str]] = {}
        for term, language in zip(terms, dictionary.languages, strict=True):
            by_language.setdefault(language, []).append(term)
        return by_language
    if languages:
        raise BadInput(
            f"{path}: found the languages {', '.join(languages)} asked for; expected a source that "
            "names languages: a dataset, MRCONSO.RRF or a table with the column language. Give "
            "one, or no --languages"
        )
    if is_mentions:
        folder = open_mentions(path)
        terms = [*folder.names.strings, *folder.splits["train"].mentions.strings]
        return {UNDETERMINED: cleaned(terms, folder.manifest["cleaning"])}
    lines = [line.strip() for line in read_text(path).split("\n")]
    return {UNDETERMINED: cleaned(lines, cleaning)}


def is_list(path: Path) -> bool:
    """Whether a file has a term in each line and nothing else: by its name and its first line."""
    if path.is_dir() or is_workbook(path) or path.name.lower().endswith((*TABLES, ".rrf")):
        return False
    first = next((line for line in read_text(path).split("\n") if line.strip()), "")
    return "\t" not in first and DOUBLE_PIPE not in first


def cleaned(terms: Sequence[str], rules: str) -> list[str]:
    return clean(pl.Series(terms, dtype=pl.String), rules).to_list()
