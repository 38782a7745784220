"""A dictionary from whatever file it stands in, as entries: identifiers and names of a concept."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from data_pipeline.dataset.dictionaries.of_table import is_code
from data_pipeline.dataset.dictionary import read_dictionary
from data_pipeline.files.rows import (
    CONCEPT_SEPARATOR,
    double_piped,
    is_double_piped,
)
from data_pipeline.files.tables.delimited import Rows
from data_pipeline.files.tables.table import is_empty, is_workbook, read_rows
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import tell
from data_pipeline.sources.corpora.gold import rows_of
from data_pipeline.sources.corpora.pubtator import PREFIX
from data_pipeline.sources.term_table import SAVE_AS_UTF8, has_terms, header_of, term_table
from data_pipeline.terminology.mention_set import Entry

LOOKED_AT = 1000  # rows, to tell which column has the codes
EXPECTED = (
    "code<TAB>name without a header; a table whose header names a column of terms and one of "
    "concepts; id|other ids||name|synonym|... as MEDIC comes with BioSyn; a dataset folder; or "
    "MRCONSO.RRF"
)


def read_entries(path: Path) -> list[Entry]:
    """The entries of a dictionary, in its order.

    Args:
      path: EXPECTED says what it may be.

    Raises:
      BadInput: another thing, or a broken row.
    """
    if path.is_dir() or path.name.upper().startswith("MRCONSO.RRF"):
        dictionary = read_dictionary(path, raw=True)
        grouped: dict[str, dict[str, None]] = {}
        for _, term, concept in dictionary.pairs():
            grouped.setdefault(concept, {dictionary.about(concept).preferred: None})[term] = None
        return [Entry((concept,), tuple(names)) for concept, names in grouped.items()]
    if not is_workbook(path) and is_double_piped(path):
        pairs = double_piped(path, 2, "ids||names, each joined with |")
        return [Entry(_divided(ids, codes=True), _divided(names)) for ids, names in pairs]
    rows = rows_of(path)
    _, header = header_of(rows)
    if len(header) > 1 and has_terms(header, path):
        frame = term_table(path, *read_rows(path, remedy=SAVE_AS_UTF8)).frame
        frame = frame.sort("preferred", descending=True, maintain_order=True)
        return _grouped(frame.select("concept", "term").iter_rows())
    return _coded(path, rows)


def _divided(field: str, *, codes: bool = False) -> tuple[str, ...]:
    """What "|" joins in a field; of codes without the name of their vocabulary."""
    parts = [part.strip() for part in field.split(CONCEPT_SEPARATOR)]
    return tuple(dict.fromkeys(PREFIX.sub("", part) if codes else part for part in parts if part))


def _grouped(rows: Iterable[tuple[str, str]]) -> list[Entry]:
    """Entries of (code, name), one for each code."""
    names: dict[str, dict[str, None]] = {}
    for code, name in rows:
        names.setdefault(code, {})[name] = None
    return [Entry((code,), tuple(some)) for code, some in names.items()]


def _coded(path: Path, rows: Rows) -> list[Entry]:
    """Rows of code and name without a header; or, where these look like it, of name and code."""
    pairs = []
    for number, fields in rows:
        if is_empty(fields):
            continue
        filled = [field.strip() for field in fields]
        if len(filled) < 2 or not all(filled[:2]) or any(filled[2:]):
            raise BadInput(f"{path}:{number}: found {fields}; expected {EXPECTED}: mend the line")
        pairs.append((filled[0], filled[1]))
    if not pairs:
        raise BadInput(f"{path}: found no rows; expected {EXPECTED}")
    first, second = (sum(map(is_code, column)) for column in zip(*pairs[:LOOKED_AT], strict=True))
    if second > first:
        tell(f"{path}: the second column looks like codes: read as name<TAB>code")
        pairs = [(code, name) for name, code in pairs]
    return _grouped(pairs)
