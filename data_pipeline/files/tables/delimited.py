"""Text with commas, semicolons or tabs -> rows of strings with their line numbers, and back."""

import codecs
import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import polars as pl

from data_pipeline.files.bounds import unpacked
from data_pipeline.files.rows import decoded, unreadable
from data_pipeline.process.errors import BadInput

SEPARATORS = ("\t", ";", ",")
LOOKED_AT = 200  # rows, to tell which separator a file has
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # what Excel saves as "Unicode text"
PACKED_XML = b"PK\x03\x04"  # a zip archive, as a workbook is
GIVE_ENCODING = (
    "give --encoding latin-1, or what else it was saved in (cp1252, utf-16), or save it as UTF-8"
)


@dataclass(frozen=True)
class Dialect:
    """How a text file writes its rows, to write others alike. It is always written as UTF-8.

    Attributes:
      separator: between the columns.
      quoted: fields may stand in double quotes; else quotes are ordinary characters.
      bom: begins with a byte order mark. Excel takes a CSV file without one for the encoding of its
        country. True for what was not UTF-8, too: whoever wrote that would not expect UTF-8.
      line_end: "\\n" or "\\r\\n".
    """

    separator: str = ","
    quoted: bool = True
    bom: bool = False
    line_end: str = "\n"


Rows = list[tuple[int, list[str]]]
"""(line number of its beginning, fields) of each row."""


def read_delimited(
    path: Path,
    separator: str | None = None,
    encoding: str | None = None,
    remedy: str = GIVE_ENCODING,
) -> tuple[Dialect, Rows]:
    """The rows of a text file, as they stand, and how they are written.

    Args:
      path: the file, also as .gz.
      separator: one character; None: the one of `SEPARATORS` that divides the header and most rows
        alike.
      encoding: as Python names it; None: UTF-8, or UTF-16 where a byte order mark says so.
      remedy: what to do about bytes that are not UTF-8 where no encoding was given, for messages.

    Raises:
      BadInput: if the file cannot be read, has other bytes, or an open quote.
    """
    try:
        content = unpacked(path) if path.suffix.lower() == ".gz" else path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    text, has_bom = _text(content, str(path), encoding, remedy)
    separator = separator or _separator(text, str(path))
    line_end = "\r\n" if text[: text.find("\n") + 1].endswith("\r\n") else "\n"
    if separator == "\t":
        is_quoted, rows = _tab_rows(text, str(path))
    else:
        is_quoted, rows = True, list(_rows(text, separator, str(path)))
    return Dialect(separator, is_quoted, has_bom, line_end), rows


def _tab_rows(text: str, place: str) -> tuple[bool, Rows]:
    """Whether quotes count, and the rows: Excel writes quotes, most programs know none."""
    plain = list(_rows(text, "\t", place, is_quoted=False))
    try:
        quoted = list(_rows(text, "\t", place))
    except BadInput:
        return False, plain
    has_tabs = any("\t" in field for _, fields in quoted for field in fields)
    if has_tabs and len({len(fields) for _, fields in plain if fields}) == 1:
        return False, plain  # else stray quotes would swallow rows
    return True, quoted


def _text(content: bytes, place: str, encoding: str | None, remedy: str) -> tuple[str, bool]:
    """The text of a file, and whether it should be written with a byte order mark."""
    if content.startswith(PACKED_XML):
        raise BadInput(
            f"{place}: found a zip archive, as Excel's workbooks are; expected text: name it .xlsx"
        )
    if encoding is None and content.startswith(UTF16):
        encoding = "utf-16"
    try:
        name = codecs.lookup(encoding or "utf-8").name
    except LookupError as error:
        raise BadInput(
            f"--encoding: found {encoding!r}; expected one that Python knows, such as utf-8, "
            "latin-1, cp1252 or utf-16"
        ) from error
    is_utf8 = name in ("utf-8", "utf-8-sig")
    if encoding is not None:
        remedy = "give another --encoding, or save it as UTF-8"
    text = decoded(content, place, "utf-8-sig" if is_utf8 else name, remedy)
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise BadInput(f"{place}:{line}: found a zero byte; expected text: {remedy}")
    return text, content.startswith(codecs.BOM_UTF8) if is_utf8 else True


def _rows(
    text: str, separator: str, place: str, is_quoted: bool = True
) -> Iterator[tuple[int, list[str]]]:
    """The rows one after the other; BadInput for a quote that is not closed, or has text behind."""
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=separator,
        quoting=csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE,
        strict=True,
    )
    first = 1
    try:
        for fields in reader:
            yield first, fields
            first = reader.line_num + 1
    except csv.Error as error:
        raise BadInput(
            f"{place}:{first}: the row that begins here cannot be read ({error}); expected fields "
            "with or without double quotes around them, those inside doubled: mend the row, or "
            "save the file again"
        ) from error


def _separator(text: str, place: str) -> str:
    """The separator that gives the header most columns, and half of the first rows as many."""
    columns = {}
    for separator in SEPARATORS:
        counts = []
        try:
            for _, fields in islice(_rows(text, separator, place, separator != "\t"), LOOKED_AT):
                if fields:
                    counts.append(len(fields))
        except BadInput:  # said later, if this is the separator
            pass
        is_alike = counts and 2 * counts.count(counts[0]) >= len(counts)
        columns[separator] = counts[0] if is_alike else 0
    best = max(SEPARATORS, key=columns.__getitem__)
    if columns[best] > 1:
        return best
    try:  # one column, whose text may have commas all the same
        is_plain = all(len(fields) < 2 for _, fields in _rows(text, ",", place))
    except BadInput:
        is_plain = False
    return "," if is_plain else "\t"


def write_delimited(path: Path, frame: pl.DataFrame, dialect: Dialect) -> None:
    """Writes a table of strings, its header first.

    Quotes are written around the fields that need them; where the dialect knows none, only if
    a field has a separator or a line break.
    """
    breaks = f"[{dialect.separator}\r\n]"
    names = pl.Series(frame.columns, dtype=pl.String)
    needs = any(column.str.contains(breaks).any() for column in (names, *frame.get_columns()))
    frame = frame.with_columns(pl.all().replace("", None))  # polars would write "" in quotes
    frame.write_csv(
        path,
        separator=dialect.separator,
        include_bom=dialect.bom,
        line_terminator=dialect.line_end,
        quote_style="necessary" if dialect.quoted or needs else "never",
    )
