"""Dictionaries in tables: by a header that names the columns; without one, term<TAB>concept."""

import re
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from data_pipeline.dataset.dictionaries.choice import Choice
from data_pipeline.dataset.dictionaries.rows import AboutConcept, Rows, shared
from data_pipeline.files.bounds import bounded_lines
from data_pipeline.files.rows import CONCEPT_SEPARATOR, DOUBLE_PIPE, names_columns, unreadable
from data_pipeline.files.tables.table import is_workbook, listed, read_rows
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import tell
from data_pipeline.sources.term_table import (
    EXPECTED,
    SAVE_AS_UTF8,
    UNDETERMINED,
    TermTable,
    has_terms,
    header_of,
    term_table,
)

LOOKED_AT = 1000  # rows, to tell whether the columns are swapped
MOST = 0.9  # of these look like it
CODE = re.compile(r"(?=\S*\d)\S{1,24}")  # no blanks, with a digit
WORD = re.compile(r"[^\W\d_]{3}")  # three letters in a row
LETTERS = 6  # a code has no more, unless all are capitals


def rows_of_table(path: Path, choice: Choice) -> Rows | None:
    """The chosen rows of a table whose header names its columns, as `term_table.NAMES` has them.

    Concepts come in the order of the table, of each the preferred terms first.

    Returns:
      the rows, or None for a file of term<TAB>CUI, with or without that header, or of CUI||name.

    Raises:
      BadInput: neither of these, a row without term or concept, or a choice that the table has no
        column for, or no row.
    """
    if not path.is_file():  # said by who reads it, as it is of an empty one
        return None
    if not is_workbook(path) and path.suffix.lower() != ".gz":
        fields = _first_fields(path)
        if not fields:
            return None
        is_double = len(fields) == 1 and DOUBLE_PIPE in fields[0]
        if is_double or len(fields) == 2 and (names_columns(fields) or not has_terms(fields, path)):
            return None
    dialect, rows = read_rows(path, remedy=SAVE_AS_UTF8)
    line, header = header_of(rows)
    if not has_terms(header, path):
        raise BadInput(
            f"{path}:{line}: found {len(header)} columns; expected 2: "
            f"term<TAB>CUI, or {EXPECTED}; the first row is {listed(header)}"
        )
    return _chosen(term_table(path, dialect, rows), choice)


def _first_fields(path: Path) -> list[str]:
    """What tabs divide in the first line that is not empty; what is no UTF-8 is said later."""
    try:
        with path.open("rb") as file:
            for line in bounded_lines(file, str(path)):
                text = line.decode("utf-8-sig", errors="replace")
                if text.strip():
                    return [field.strip() for field in text.split("\t")]
    except OSError as error:
        raise unreadable(path, error) from error
    return []


def _chosen(table: TermTable, choice: Choice) -> Rows:
    """The rows that a choice takes of a table."""
    frame, path = table.frame.with_row_index("row"), table.path
    needed = ("language", "vocabulary", "vocabulary", "type")
    for (option, asked), role in zip(choice.options().items(), needed, strict=True):
        if asked and role not in table.columns:
            raise BadInput(
                f"{path}: found {option} {' '.join(asked)}; expected a table with a column {role}, "
                f"as nothing else says it: add one, or give no {option}"
            )
    choice.check(_values(frame["language"]), _values(frame["vocabulary"]), path)
    types = _values(frame["type"].str.split(CONCEPT_SEPARATOR).explode().str.strip_chars())
    wanted = [types[place] for place in choice.types_among(types, path)]
    has_type = (
        pl.col("type")
        .str.split(CONCEPT_SEPARATOR)
        .list.eval(pl.element().str.strip_chars().is_in(wanted))
    )
    is_kept = [
        (pl.col("language").is_in(choice.languages), choice.languages),
        (pl.col("vocabulary").is_in(choice.sources), choice.sources),
        (pl.col("vocabulary").is_in(choice.concepts_of).any().over("concept"), choice.concepts_of),
        (has_type.list.any().any().over("concept"), choice.types),
    ]
    kept = frame.filter(*(condition for condition, asked in is_kept if asked))
    choice.check_left(kept.height, path)
    rows = (
        kept.sort(pl.col("row").min().over("concept"), ~pl.col("preferred"), maintain_order=True)
        .group_by("concept", "term", maintain_order=True)
        .agg(pl.first("language"), pl.col("vocabulary").unique().sort())
    )
    return Rows(
        terms=rows["term"].to_list(),
        concepts=rows["concept"].to_list(),
        languages=rows["language"].replace("", UNDETERMINED).to_list()
        if "language" in table.columns
        else None,
        vocabularies=shared(filter(None, one) for one in rows["vocabulary"].to_list())
        if "vocabulary" in table.columns
        else None,
        about_concepts=_about(frame, rows, choice),
        made_of={},
    )


def _about(frame: pl.DataFrame, rows: pl.DataFrame, choice: Choice) -> dict[str, AboutConcept]:
    """Of each concept its first term, its codes in the vocabularies chosen, and its types."""
    coded = frame.filter(pl.col("code") != "")
    if choice.sources:
        coded = coded.filter(pl.col("vocabulary").is_in(choice.sources))
    codes: dict[str, dict[tuple[str, str], None]] = {}
    for concept, vocabulary, code in coded.select("concept", "vocabulary", "code").iter_rows():
        codes.setdefault(concept, {})[vocabulary, code] = None
    types: dict[str, dict[str, None]] = {}
    for concept, joined in frame.filter(pl.col("type") != "").select("concept", "type").iter_rows():
        for one in filter(None, map(str.strip, joined.split(CONCEPT_SEPARATOR))):
            types.setdefault(concept, {})[one] = None
    first = rows.unique("concept", keep="first", maintain_order=True)
    return {
        concept: AboutConcept(term, tuple(codes.get(concept, ())), tuple(types.get(concept, ())))
        for concept, term in first.select("concept", "term").iter_rows()
    }


def _values(column: pl.Series) -> list[str]:
    """The distinct values of a column, without the empty one."""
    return sorted(set(column.to_list()) - {""})


def terms_first(rows: Sequence[tuple[str, str]], path: Path) -> Sequence[tuple[str, str]]:
    """Rows of term and concept; without a header, where they look like code and name, swapped."""
    if names_columns(_first_fields(path)):
        return rows
    looked_at = rows[:LOOKED_AT]
    codes = sum(is_code(first) for first, _ in looked_at)
    names = sum(bool(WORD.search(second)) and not is_code(second) for _, second in looked_at)
    if min(codes, names) < MOST * len(looked_at):
        return rows
    first, second = looked_at[0]
    tell(
        f"{path}: read as concept<TAB>term, as its first column looks like codes ({first!r}, "
        f"{second!r}); if it is not, write the header term<TAB>concept above it"
    )
    return [(term, concept) for concept, term in rows]


def is_code(text: str) -> bool:
    """Whether a string looks like a code: no blanks, a digit, few letters or capitals alone."""
    is_short = sum(character.isalpha() for character in text) <= LETTERS
    return CODE.fullmatch(text) is not None and (is_short or text.isupper())
