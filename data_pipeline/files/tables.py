"""Tables of strings from CSV, TSV and Excel files, and limits on what a file may ask for."""

import codecs
import csv
import datetime
import gzip
import hashlib
import io
import lzma
import re
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

import polars as pl

from data_pipeline.files.whole import is_stream, written_whole
from data_pipeline.process import BadInput, did_you_mean, tell

# -------------------------------------------------------------------------------------------------
# Limits: the length of lines, and the size that an archive may unpack to.
#
# A damaged or malicious file of some megabytes must not take the memory of a machine.

LONGEST_LINE = 1 << 20  # bytes; the longest of a UMLS has some ten thousand
_MOST_TIMES = 200  # as large as packed; terminologies unpack to 5 to 20 times their size
_ALWAYS_FINE = 64 << 20  # bytes


def check_lines(content: bytes, place: str) -> None:
    """Raise BadInput if a text has a line of more than 2 * LONGEST_LINE; may miss shorter long
    lines.
    """
    for start in range(0, len(content) - LONGEST_LINE, LONGEST_LINE):
        if content.find(b"\n", start, start + LONGEST_LINE) < 0:
            raise too_long(place, content.count(b"\n", 0, start) + 1)


def bounded_lines(file: IO[bytes], place: str, first: int = 1) -> Iterator[bytes]:
    """The lines of a file with their ends; `first` is the number of the first line, for messages.

    Raises:
        BadInput: a line has more than LONGEST_LINE bytes.
    """
    for number, line in enumerate(iter(partial(file.readline, LONGEST_LINE), b""), start=first):
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            raise too_long(place, number)
        yield line


def too_long(place: str, number: int) -> BadInput:
    return BadInput(
        f"{place}:{number}: found a line of more than {LONGEST_LINE:,} bytes; expected text with "
        "line ends: see whether the file is what its name says, or fetch it again"
    )


def check_unpacked(place: str, packed: int, unpacked: int) -> None:
    """Raise BadInput if compressed data unpacks to far more than any text does.

    Args:
        place: for the message.
        packed, unpacked: bytes; while it is unpacked, those so far.
    """
    if unpacked > max(_ALWAYS_FINE, _MOST_TIMES * packed):
        raise BadInput(
            f"{place} unpacks to {unpacked / 1e6:,.0f} MB or more, from {packed / 1e6:,.1f} MB; "
            f"expected at most {_MOST_TIMES} times as much, as of any text: see whether the file "
            "is what its name says, or fetch it again"
        )


# What Python raises for archives that are damaged, cut off, or newer than it knows.
ZIP_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError),
    *(OSError, ValueError, NotImplementedError),
)
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_ENCRYPTED = 0x1


def zip_members(
    archive: zipfile.ZipFile, label: str, is_wanted: Callable[[str], bool]
) -> list[zipfile.ZipInfo]:
    """The wanted members of an archive, in its order.

    Args:
        archive: of which no member is read here.
        label: its name in messages.
        is_wanted: of the name of a member.

    Raises:
        BadInput: one is there twice, is encrypted, is packed by a method that Python does not know,
            or unpacks to far more than any text does.
    """
    found: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename
        if not is_wanted(name):
            continue
        if info.flag_bits & _ENCRYPTED:
            raise BadInput(
                f"{label}: {name} is encrypted; expected an archive without a password: unpack it "
                "with the password, and give the files"
            )
        if info.compress_type not in _METHODS:
            raise BadInput(
                f"{label}: {name} is packed by a method that cannot be read here (number "
                f"{info.compress_type}); expected Deflate, as most programs pack: unpack it with "
                "the program that packed it, and give the files"
            )
        if name in found:
            both = f"{found[name].file_size:,} and {info.file_size:,} bytes"
            raise BadInput(
                f"{label}: {name} is there twice, with {both}, and nothing says which one counts; "
                "expected each name once: unpack the right one and give that, or fetch it again"
            )
        found[name] = info
        check_unpacked(f"{name} in {label}", info.compress_size, info.file_size)
    return list(found.values())


def unpacked(path: Path) -> bytes:
    """The content of a .gz file; BadInput if it is damaged or unpacks to too much."""
    pieces, size = [], 0
    try:
        with path.open("rb") as packed, gzip.GzipFile(fileobj=packed) as file:
            while piece := file.read(8 << 20):
                size += len(piece)
                check_unpacked(str(path), packed.tell(), size)
                pieces.append(piece)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(f"{path} is damaged or cut off ({error}); fetch the file again") from error
    return b"".join(pieces)


# -------------------------------------------------------------------------------------------------
# Tab-separated and "
#
# " files of evaluations, with line numbers; hashes of rows.

# Joins several concepts of one mention or term in one field.
CONCEPT_SEPARATOR = "|"
DOUBLE_PIPE = "||"  # between the columns of XL-BEL's files
# Column names, in lower case, by which a header is recognized and skipped.
TERM_COLUMNS = {"mention", "term", "name", "string"}
CONCEPT_COLUMNS = {"cui", "cuis", "concept", "concept_id", "code", "id"}


def split_concepts(joined: str) -> list[str]:
    """The concepts that are joined in one field, in order."""
    return joined.split(CONCEPT_SEPARATOR)


def read_text(path: Path) -> str:
    """The text of a UTF-8 file without its byte order mark; BadInput if it is not UTF-8."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    return decoded(content, str(path))


def unreadable(path: Path, error: OSError) -> BadInput:
    return BadInput(f"{path}: cannot be read ({error.strerror}); give an existing file")


def decoded(
    content: bytes,
    place: str,
    encoding: str = "utf-8-sig",
    remedy: str = "fetch the file again, or convert it to UTF-8",
) -> str:
    """Bytes decoded as UTF-8 (without its byte order mark) or another encoding.

    Args:
      content: the bytes.
      place: their name in messages.
      encoding: as Python names it.
      remedy: what to do about bytes that are none of it, for the message.
    """
    check_lines(content, place)
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        name = "UTF-8" if encoding == "utf-8-sig" else encoding
        raise BadInput(
            f"{place}:{line}: found byte 0x{content[error.start]:02x}, which is not {name}; "
            f"{remedy}"
        ) from error


def tab_separated(path: Path) -> list[tuple[int, list[str]]]:
    """(line number, stripped fields) of each line that is not empty.

    Lines end at a newline only: terms may hold other characters that Python takes for line ends.
    Quotes are ordinary characters.
    """
    rows = list(_split_lines(path))
    if not rows:
        raise _no_lines(path)
    return rows


def _split_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """`tab_separated` as an iterator: a dictionary has millions of lines."""
    text, number, start = read_text(path), 0, 0
    while start <= len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        line, number, start = text[start:end], number + 1, end + 1
        if line.strip():
            yield number, [field.strip() for field in line.split("\t")]


def two_columns(path: Path, expected: str) -> list[tuple[str, str]]:
    """The rows of a two-column file, without its header.

    Args:
      path: the file.
      expected: the columns in words, for messages, such as "mention<TAB>CUI".
    """
    found: list[tuple[str, str]] = []
    second: dict[str, str] = {}  # equal concepts as one object
    has_header = False
    for number, fields in _split_lines(path):
        if not (found or has_header):
            has_header = names_columns(fields)
            if has_header:
                continue
        if len(fields) != 2:
            raise BadInput(f"{path}:{number}: found {len(fields)} columns; expected 2: {expected}")
        if not all(fields):
            raise BadInput(f"{path}:{number}: found an empty column; expected {expected}")
        found.append((fields[0], second.setdefault(fields[1], fields[1])))
    if has_header and not found:
        raise BadInput(f"{path}: found a header and no rows; expected {expected}")
    if not found:
        raise _no_lines(path)
    return found


def names_columns(fields: Sequence[str]) -> bool:
    """Whether the fields of a first line name the columns of terms and concepts."""
    lower = [field.lower() for field in fields]
    return len(lower) == 2 and lower[0] in TERM_COLUMNS and lower[1] in CONCEPT_COLUMNS


def _no_lines(path: Path) -> BadInput:
    return BadInput(f"{path}: found no lines; expected tab-separated rows: fetch or write it again")


def is_double_piped(path: Path) -> bool:
    """Whether the first line of a file has the columns of XL-BEL and SapBERT, CUI||name."""
    try:
        with path.open("rb") as file:
            return DOUBLE_PIPE.encode() in next(bounded_lines(file, str(path)), b"")
    except OSError as error:
        raise unreadable(path, error) from error


def double_piped(path: Path, columns: int, expected: str) -> list[tuple[str, ...]]:
    """The first `columns` fields of each line of a file such as CUI||name, or CUI||name||context.

    Args:
      path: the file.
      columns: fields to keep; a line may have one more.
      expected: the columns in words, for messages.
    """
    rows = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        fields = [field.strip() for field in line.split(DOUBLE_PIPE, columns)]
        if len(fields) < columns or not all(fields[:columns]):
            raise BadInput(
                f"{path}:{number}: found {line[:80]!r}; expected {expected}: mend the line, or "
                "fetch the file again"
            )
        rows.append(tuple(fields[:columns]))
    if not rows:
        raise BadInput(f"{path}: found no lines; expected {expected}: fetch it again")
    return rows


def distinct_rows(rows: Iterable[Sequence[str]]) -> tuple[str, int]:
    """`content_hash` of the distinct rows, and their number."""
    lines = sorted("\t".join(row) for row in rows)
    digest, count, last = hashlib.sha256(), 0, None
    for line in lines:
        if line != last:
            digest.update(line.encode() + b"\n")
            count, last = count + 1, line
    return digest.hexdigest(), count


def content_hash(rows: Iterable[Sequence[str]]) -> str:
    """SHA-256 of rows of strings, independent of their order."""
    digest = hashlib.sha256()
    for line in sorted("\t".join(row) for row in rows):
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


# -------------------------------------------------------------------------------------------------
# Text with commas, semicolons or tabs: its rows with line numbers, and the writer of such text.

_SEPARATORS = ("\t", ";", ",")
_LOOKED_AT = 200  # rows, to tell which separator a file has
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # what Excel saves as "Unicode text"
_PACKED_XML = b"PK\x03\x04"  # a zip archive, as a workbook is
_GIVE_ENCODING = (
    "give --encoding cp1252 (Excel's), or what else it was saved in (latin-1, utf-16), or save it "
    "as UTF-8"
)


@dataclass(frozen=True)
class Dialect:
    """The format of a text file, for a writer that keeps it; output is always UTF-8.

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


def _read_delimited(
    path: Path,
    separator: str | None = None,
    encoding: str | None = None,
    remedy: str = _GIVE_ENCODING,
) -> tuple[Dialect, Rows]:
    """The rows of a text file as they are, and its format.

    Args:
      path: the file, also as .gz.
      separator: one character; None: the one of `_SEPARATORS` that divides the header and most rows
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
    """Whether quotes are special, and the rows: Excel quotes fields, most programs do not."""
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
    """The text of a file, and whether its copy should have a byte order mark."""
    if content.startswith(_PACKED_XML):
        raise BadInput(
            f"{place}: found a zip archive, as Excel's workbooks are; expected text: name it .xlsx"
        )
    if encoding is None and content.startswith(_UTF16):
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
    """Iterates over rows; BadInput for a quote that is not closed or is followed by text."""
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
        if "field limit" in str(error):
            raise BadInput(
                f"{place}:{first}: found a field of more than {csv.field_size_limit():,} "
                "characters in the row that begins here; expected shorter ones: a double quote "
                "that is never closed takes all that follows, so close it or take it out"
            ) from error
        raise BadInput(
            f"{place}:{first}: the row that begins here cannot be read ({error}); expected fields "
            "with or without double quotes around them, those inside doubled: mend the row, or "
            "save the file again"
        ) from error


def _separator(text: str, place: str) -> str:
    """The separator that splits the header into most columns, and half of the first rows alike."""
    columns = {}
    for separator in _SEPARATORS:
        counts = []
        try:
            for _, fields in islice(_rows(text, separator, place, separator != "\t"), _LOOKED_AT):
                if fields:
                    counts.append(len(fields))
        except BadInput:  # said later, if this is the separator
            pass
        is_alike = counts and 2 * counts.count(counts[0]) >= len(counts)
        columns[separator] = counts[0] if is_alike else 0
    best = max(_SEPARATORS, key=columns.__getitem__)
    if columns[best] > 1:
        return best
    try:  # one column, whose text may have commas all the same
        is_plain = all(len(fields) < 2 for _, fields in _rows(text, ",", place))
    except BadInput:
        is_plain = False
    return "," if is_plain else "\t"


def _write_delimited(path: Path, frame: pl.DataFrame, dialect: Dialect) -> None:
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


# -------------------------------------------------------------------------------------------------
# Tables with a header, read from and written to the file types that hospitals use.

_WORKBOOK = (".xlsx", ".xlsm")
_OLD_WORKBOOK = (".xls", ".ods", ".xlsb")
_WRITTEN = (".csv", ".tsv", ".txt", ".xlsx")
STDOUT = Path("/dev/stdout")


@dataclass(frozen=True)
class Table:
    """Rows under a header.

    Attributes:
      path: the file, for messages.
      frame: a string column for each of the header's names, which are as they stand there; what is
        empty is "".
      lines: of each row the number of the line in which it begins, or of its row in the workbook.
      dialect: how the file writes its rows.
    """

    path: Path
    frame: pl.DataFrame
    lines: list[int]
    dialect: Dialect

    def find_column(self, name: str, option: str) -> str:
        """The column of that name, ignoring case and blanks.

        Args:
          name: what a user calls it.
          option: the option that it was given for, for the message, such as "--column".

        Raises:
          BadInput: if there is none, or several that differ in case or blanks alone.
        """
        columns = self.frame.columns
        if name in columns:
            return name
        found = [column for column in columns if folded(column) == folded(name)]
        if len(found) == 1:
            return found[0]
        why = f"could be {' or '.join(map(repr, found))}" if found else "no column has that name"
        raise BadInput(
            f"{option} {name}: {why}; {self.path} has the columns {listed(columns)}"
            f"{did_you_mean(name, columns)}"
        )


def folded(name: str) -> str:
    """A column's name without case and blanks: "Local Term" becomes "localterm"."""
    return re.sub(r"[\s_-]+", "", name).casefold()


def listed(columns: Iterable[str]) -> str:
    """The names of columns, for a message."""
    return ", ".join(column or "(no name)" for column in columns)


def read_table(
    path: Path,
    *,
    separator: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
) -> Table:
    """The table in a .csv, .tsv, .txt (each also as .gz) or .xlsx file.

    Empty lines are no rows, unless the table has one column; those at the end never are. Columns at
    the end that are empty, header and all, are left out.

    Args:
      path: the file. A name with another ending is read as text.
      separator: one character, of text; None: found out from header and rows.
      encoding: of text, as Python names it; None: UTF-8.
      sheet: name of the sheet of a workbook; None: the first.

    Raises:
      BadInput: if it cannot be read, has no rows, two columns of one name, or a row with other
        columns than its header, with file and line.
    """
    dialect, rows = read_rows(path, separator=separator, encoding=encoding, sheet=sheet)
    return table_of(path, dialect, rows)


def read_rows(
    path: Path,
    *,
    separator: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
    remedy: str = _GIVE_ENCODING,
) -> tuple[Dialect, Rows]:
    """As `read_table`, but all rows as they are, the header first.

    `remedy` says what to do about bytes that are not UTF-8, where no encoding was given.
    """
    if path.name.lower().endswith(_OLD_WORKBOOK):
        raise BadInput(f"{path}: found {path.suffix}; expected .xlsx, .csv or .tsv: save it as one")
    if is_workbook(path):
        return Dialect(), _read_workbook(path, sheet)
    if separator is not None and len(separator) != 1:
        raise BadInput(f"--separator: found {separator!r}; expected one character, such as ';'")
    return _read_delimited(path, separator, encoding, remedy)


def is_workbook(path: Path) -> bool:
    return path.name.lower().endswith(_WORKBOOK)


def table_of(path: Path, dialect: Dialect, rows: Rows) -> Table:
    """A table made of rows, of which the first that is not empty is the header."""
    filled = [place for place, (_, fields) in enumerate(rows) if not is_empty(fields)]
    if len(filled) < 2:
        what = "a header and no rows" if filled else "no rows"
        raise BadInput(f"{path}: found {what}; expected a header and the rows below it")
    first, last = filled[0], filled[-1]
    (_, header), rows = rows[first], rows[first + 1 : last + 1]
    if len(header) > 1:
        rows = [row for row in rows if not is_empty(row[1])]
    for number, fields in rows:
        if len(fields) < len(header) > 1 or any(fields[len(header) :]):
            raise BadInput(
                f"{path}:{number}: found {len(fields)} columns; expected the {len(header)} of the "
                f"header ({listed(header)}): mend the row, quote a field with the separator in it, "
                "or save the table as .xlsx"
            )
    width = len(header)
    while not header[width - 1] and not any(
        "".join(fields[width - 1 : width]) for _, fields in rows
    ):
        width -= 1
    names = header[:width]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise BadInput(
            f"{path}: found more than one column {twice[0] or '(no name)'!r}; expected names that "
            "differ: rename one in the header"
        )
    columns = {
        name: [fields[place] if fields else "" for _, fields in rows]
        for place, name in enumerate(names)
    }
    frame = pl.DataFrame(columns, schema=dict.fromkeys(names, pl.String))
    return Table(path, frame, [number for number, _ in rows], dialect)


def is_empty(fields: list[str]) -> bool:
    return not any(field.strip() for field in fields)


def check_table_name(path: Path, option: str) -> None:
    """Raise BadInput if `write_table` does not know the ending of a name; streams need none.

    Args:
      path: what the user gave.
      option: the option that it was given for, for the message, such as "--out".
    """
    if path.suffix.lower() not in _WRITTEN and not is_stream(path):
        raise BadInput(
            f"{option}: found {path}; expected a name that ends in {', '.join(_WRITTEN[:-1])} or "
            f"{_WRITTEN[-1]}, by which it is written"
        )


def write_table(path: Path, frame: pl.DataFrame, dialect: Dialect | None = None) -> None:
    """Writes a table atomically; streams, such as `STDOUT`, get tab-separated text.

    .csv has the separator of the dialect if that is another than a tab, else commas; .tsv and .txt
    have tabs; .xlsx is a workbook of text cells. Text is UTF-8.

    Args:
      path: the file to write.
      frame: its columns in their order; they are written as strings, null as "".
      dialect: of the input, to write it alike: separator, quotes, byte order mark, line ends.

    Raises:
      BadInput: for a name of another ending, or what Excel has no room for.
    """
    check_table_name(path, "write_table")
    dialect = dialect or Dialect()
    ending = path.suffix.lower()
    frame = frame.select(pl.all().cast(pl.String).fill_null(""))
    if is_stream(path):
        dialect = replace(dialect, separator="\t", bom=False, line_end="\n")
    elif ending != ".csv":
        dialect = replace(dialect, separator="\t")
    elif dialect.separator == "\t":
        dialect = replace(dialect, separator=",", quoted=True)
    with written_whole(path) as unfinished:
        if ending == ".xlsx" and not is_stream(path):
            _write_workbook(unfinished, frame)
        else:
            _write_delimited(unfinished, frame, dialect)


# -------------------------------------------------------------------------------------------------
# Excel workbooks (.xlsx): rows of strings with their row numbers, and the writer.

_MOST_ROWS, _MOST_CHARACTERS = 1_048_576, 32_767  # of a sheet, of a cell
_EXACT = 10**15  # Excel keeps 15 digits of a number
_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")  # how a workbook writes what XML cannot hold
_TO_ESCAPE = re.compile(r"[\x00-\x08\x0b-\x1f\ufffe\uffff]|_(?=x[0-9A-Fa-f]{4}_)")
_DIGITS = re.compile(r"(0+)(?:\.(0+))?")  # a number format that shows so many digits


def _read_workbook(path: Path, sheet: str | None = None) -> Rows:
    """The rows of a sheet as strings, padded to the length of the longest row.

    Numbers are as they are shown where zeros say so (a cell 123 in the format 0000 is "0123"), and
    else as short as they can be: 123, not 123.0. Dates are 2024-01-31, with a time if they have
    one. Of a formula it is what was last computed.

    Args:
      path: the workbook.
      sheet: name of the sheet; None: the first, which is said if there are more.

    Raises:
      BadInput: if it cannot be read, or has no such sheet.
    """
    import openpyxl

    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles and checks of input that are not read
            with zipfile.ZipFile(file) as archive:
                zip_members(archive, str(path), lambda _: True)
            workbook = openpyxl.load_workbook(file, read_only=True, data_only=True)
            return _sheet_rows(_sheet(workbook, path, sheet), path)
    except BadInput:
        raise
    except OSError as error:
        raise unreadable(path, error) from error
    except Exception as error:  # what openpyxl raises for a damaged file is any of Python's errors
        raise BadInput(
            f"{path}: cannot be read as an Excel workbook ({type(error).__name__}: {error}); "
            "expected .xlsx: open it in Excel and save it again, without a password, or as .csv"
        ) from error


def _sheet(workbook: Any, path: Path, name: str | None) -> Any:
    names = [one.title for one in workbook.worksheets]
    if name is not None and name not in names or not names:
        raise BadInput(f"{path}: there is no sheet {name!r}; it has {', '.join(names) or 'none'}")
    if name is None and len(names) > 1:
        tell(f"{path}: reading the sheet {names[0]!r}, the first of {', '.join(names)}")
    return workbook[name or names[0]]


def _sheet_rows(sheet: Any, path: Path) -> Rows:
    sheet.reset_dimensions()  # what a file says of its size may be wrong
    rows: Rows = []
    is_told = False
    for number, cells in enumerate(sheet.iter_rows(), start=1):
        fields = [_shown(cell.value, cell.number_format) for cell in cells]
        if not is_told and any(_has_lost_digits(cell.value) for cell in cells):
            is_told = True
            tell(
                f"warning: {path}:{number}: a number of more than 15 digits, of which Excel has "
                "lost the last ones; if it is a code, keep such columns as text"
            )
        while fields and not fields[-1]:
            fields.pop()
        rows.append((number, fields))
    width = max((len(fields) for _, fields in rows), default=0)
    return [(number, fields + [""] * (width - len(fields))) for number, fields in rows]


def _shown(value: Any, number_format: str) -> str:
    """The string that a cell shows."""
    if value is None:
        return ""
    if isinstance(value, str):
        return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), value)
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int | float):
        if zeros := _DIGITS.fullmatch(number_format):
            decimals = len(zeros[2] or "")
            width = len(zeros[1]) + (decimals and decimals + 1) + (value < 0)
            return f"{value:0{width}.{decimals}f}"
        return str(int(value)) if value == int(value) else f"{value:.15g}"
    if isinstance(value, datetime.datetime):
        return str(value if value.time() != datetime.time() else value.date())
    return str(value)


def _has_lost_digits(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) >= _EXACT


def _write_workbook(path: Path, frame: pl.DataFrame) -> None:
    """Writes a table of strings as the only sheet of a workbook, its header first.

    All cells are text: one that begins with "=" is no formula, and 0123 keeps its zero.

    Raises:
      BadInput: for more rows or characters than Excel has room for; nothing is written then.
    """
    import openpyxl
    from openpyxl.cell import WriteOnlyCell

    if frame.height >= _MOST_ROWS:
        raise BadInput(
            f"{frame.height:,} rows; an Excel sheet has room for {_MOST_ROWS - 1:,} and their "
            "header: write .csv or .tsv"
        )
    rows = [
        [_escaped(field or "", number) for field in fields]
        for number, fields in enumerate([tuple(frame.columns), *frame.iter_rows()], start=1)
    ]
    workbook = openpyxl.Workbook(write_only=True)
    sheet = workbook.create_sheet("Sheet1")
    for row in rows:
        cells = [WriteOnlyCell(sheet, field) for field in row]
        for cell in cells:
            cell.data_type = "s"  # else "=1+1" would be a formula
        sheet.append(cells)
    workbook.save(path)


def _escaped(text: str, row: int) -> str:
    """The text, escaped for a cell; BadInput if it is too long."""
    escaped = _TO_ESCAPE.sub(lambda match: f"_x{ord(match[0]):04X}_", text)
    if len(escaped) > _MOST_CHARACTERS:
        raise BadInput(
            f"row {row:,}: {text[:40]!r}... has {len(text):,} characters; a cell of Excel has room "
            f"for {_MOST_CHARACTERS:,}: write .csv or .tsv"
        )
    return escaped
