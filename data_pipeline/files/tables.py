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
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import lru_cache, partial
from itertools import islice, takewhile
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


def _check_lines(content: bytes, place: str) -> None:
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
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,  # by zipfile, of a version or method that it does not know
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
        raise _damaged(path, error) from error
    return b"".join(pieces)


def _damaged(path: Path, error: Exception) -> BadInput:
    return BadInput(f"{path} is damaged or cut off ({error}); fetch the file again")


# -------------------------------------------------------------------------------------------------
# Files of evaluations, separated by tabs or "|", with line numbers; hashes of rows.

# What databases write for nothing, in lower case.
NOTHING = ("", "null", "na", "\\n")
# Joins several concepts of one mention or term in one field.
CONCEPT_SEPARATOR = "|"
DOUBLE_PIPE = "||"  # between the columns of XL-BEL's files
# Column names, in lower case, by which a header is recognized and skipped.
TERM_COLUMNS = {"mention", "term", "name", "string"}
CONCEPT_COLUMNS = {"cui", "cuis", "concept", "concept_id", "code", "id"}


def split_concepts(joined: str) -> list[str]:
    """The concepts that are joined in one field, in order."""
    return joined.split(CONCEPT_SEPARATOR)


def tidy_concepts(joined: str) -> str:
    """Concepts joined in one field, without blanks around them and without empty ones."""
    return CONCEPT_SEPARATOR.join(filter(None, map(str.strip, split_concepts(joined))))


def read_text(path: Path, otherwise: str | None = None) -> str:
    """The text of a file in UTF-8, or UTF-16 with a byte order mark; BadInput if it is neither.

    Line ends are those of `_with_line_ends`. `otherwise` is as of `decoded`.
    """
    content = read_bytes(path)
    encoding = "utf-16" if content.startswith(_UTF16) else "utf-8-sig"
    return _with_line_ends(decoded(content, str(path), encoding, otherwise=otherwise))


def _with_line_ends(text: str) -> str:
    """The text, with a newline where old programs of the Macintosh end lines with \\r alone."""
    return text if "\n" in text else text.replace("\r", "\n")


def first_line(path: Path) -> str:
    """The first line of a file that is not empty, without blanks at its ends; "" if there is none.

    A first line of a comment (#) without tabs is passed over. Bytes of other encodings than those
    of `read_text` are reported by who reads it.
    """
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            content = file.read(LONGEST_LINE)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(path, error) from error
    except OSError as error:
        raise unreadable(path, error) from error
    encoding = "utf-16" if content[:2] in _UTF16 else "utf-8-sig"
    if encoding == "utf-8-sig" and len(content) == LONGEST_LINE and b"\n" not in content:
        raise too_long(str(path), 1)
    lines = _with_line_ends(content.decode(encoding, errors="replace")).split("\n")
    found = (line.strip("\r ") for line in lines)
    return next((one for one in found if one.strip() and not _is_comment(one)), "")


def _is_comment(line: str) -> bool:
    return line.startswith("#") and "\t" not in line


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked if it is a .gz; BadInput if it cannot be read."""
    try:
        return unpacked(path) if path.suffix.lower() == ".gz" else path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error


def begins_as_utf16(path: Path) -> bool:
    """Whether a file begins with a byte order mark of UTF-16."""
    try:
        with path.open("rb") as file:
            return file.read(2) in _UTF16
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> BadInput:
    return BadInput(f"{path}: cannot be read ({error.strerror}); give an existing file")


# What files begin with that are no text, and what to do about them.
_NO_TEXT = {
    b"PK\x03\x04": "a zip archive, as Excel's workbooks are; expected text: unpack it if it is "
    "packed, and name it .xlsx if it is a workbook",
    b"\xd0\xcf\x11\xe0": "a file of old Office, such as .xls; expected text: save it as .xlsx",
    b"\x1f\x8b": "what gzip has packed; expected text: unpack it, or call a table .csv.gz",
    b"\xfd7zXZ": "what xz has packed; expected text: unpack it",
    b"BZh91AY": "what bzip2 has packed; expected text: unpack it",
}


def check_is_text(content: bytes, place: str) -> None:
    """Raise BadInput for content that begins as an archive or a workbook does."""
    for begin, what in _NO_TEXT.items():
        if content.startswith(begin):
            raise BadInput(f"{place}: found {what}")


_ONE_BYTE = re.compile("cp125|iso8859|mac|latin")  # encodings, as `codec_of` names them
_CONTROLS = re.compile(rb"[\x80-\x9f]")  # in latin-1; Windows has letters and quotes there


def decoded(
    content: bytes,
    place: str,
    encoding: str = "utf-8-sig",
    remedy: str = "fetch the file again, or convert it to UTF-8",
    otherwise: str | None = None,
) -> str:
    """Bytes decoded as UTF-8 (without its byte order mark) or another encoding.

    Args:
      content: the bytes.
      place: their name in messages.
      encoding: as Python names it; not used for text that is UTF-8 and would be misread. Latin-1
        with bytes that are letters and quotes in cp1252 alone is read as that.
      remedy: what to do about bytes that are none of it, for the message.
      otherwise: another encoding for such bytes, which is said.
    """
    check_is_text(content, place)
    _check_lines(content, place)
    if _ONE_BYTE.match(encoding) and not content.isascii():
        with suppress(UnicodeDecodeError):  # text of these encodings is never that by chance
            text = content.decode("utf-8-sig")
            tell(f"warning: {place}: is UTF-8, so it is read as such, not as {encoding}")
            return text
    if encoding == "iso8859-1" and _CONTROLS.search(content):
        with suppress(UnicodeDecodeError):
            text = content.decode("cp1252")
            tell(f"{place}: has signs of Windows, so it is read as cp1252, not as latin-1")
            return text
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        if otherwise is not None and codec_of(otherwise) not in ("utf-8", "utf-8-sig"):
            tell(f"{place}: is not UTF-8, so it is read as {otherwise}")
            again = "give another --encoding, or save it as UTF-8"
            return decoded(content, place, codec_of(otherwise), again)
        line = content.count(b"\n", 0, error.start) + 1
        name = "UTF-8" if encoding == "utf-8-sig" else encoding
        raise BadInput(
            f"{place}:{line}: found byte 0x{content[error.start]:02x}, which is not {name}; "
            f"{remedy}"
        ) from error


def codec_of(encoding: str) -> str:
    """Python's name of an encoding; BadInput for one that it does not know."""
    try:
        return codecs.lookup(encoding).name
    except LookupError as error:
        raise BadInput(
            f"--encoding: found {encoding!r}; expected one that Python knows, such as utf-8, "
            "latin-1, cp1252 or utf-16"
        ) from error


def tab_separated(
    path: Path, otherwise: str | None = None, *, quoted: bool = False
) -> list[tuple[int, list[str]]]:
    """(line number, stripped fields) of each line that is not empty.

    Lines end at a newline only: terms may hold other characters that Python takes for line ends.
    Quotes are ordinary characters or, with `quoted`, as of `read_rows`: Excel and R write fields in
    quotes. `otherwise` is as of `decoded`.
    """
    rows = list(_split_lines(path, otherwise, quoted))
    if not rows:
        raise _no_lines(path)
    return rows


def _split_lines(
    path: Path, otherwise: str | None, quoted: bool
) -> Iterator[tuple[int, list[str]]]:
    """`tab_separated` as an iterator: a dictionary has millions of lines. Or the rows of a
    workbook.
    """
    if is_workbook(path):
        try:
            found = path.stat()
        except OSError as error:
            raise unreadable(path, error) from error
        yield from _lines_of_workbook(path, found.st_mtime_ns, found.st_size)
        return
    text, number, start = read_text(path, otherwise), 0, 0
    if quoted and '"' in text:
        rows = list(_tab_rows(_without_lines(text, _comments(text)), str(path))[1])
        _tell_of_swallowed(rows, "\t", str(path))
        for number, fields in rows:
            if not is_empty(fields):
                yield number, [field.strip() for field in fields]
        return
    while start <= len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        line, number, start = text[start:end], number + 1, end + 1
        if line.strip():
            yield number, [field.strip() for field in line.split("\t")]


@lru_cache(maxsize=1)  # who finds out what a file is, and who reads it, read the same file
def _lines_of_workbook(path: Path, _changed: int, _size: int) -> list[tuple[int, list[str]]]:
    rows = (row for row in _read_workbook(path)[1] if not is_empty(row[1]))
    return [(number, [field.strip() for field in fields]) for number, fields in rows]


_CODE = re.compile(r"(?=\S*\d)\S{1,24}")  # no blanks, with a digit


def two_columns(
    path: Path, expected: str, otherwise: str | None = None, *, quoted: bool = False
) -> list[tuple[str, str]]:
    """The rows of a two-column file, without its header.

    Args:
      path: the file.
      expected: the columns in words, for messages, such as "mention<TAB>CUI".
      otherwise, quoted: as of `tab_separated`.

    Raises:
      BadInput: it cannot be read, or a row has other columns, an empty one or an error of a
        spreadsheet.
    """
    found: list[tuple[str, str]] = []
    second: dict[str, str] = {}  # equal concepts as one object
    has_header = False
    for number, fields in _split_lines(path, otherwise, quoted):
        if not found and len(fields) == 1 and _is_comment(fields[0]):
            continue
        if not (found or has_header):
            has_header = names_columns(fields)
            if has_header:
                continue
        if len(fields) != 2:
            raise BadInput(f"{path}:{number}: found {len(fields)} columns; expected 2: {expected}")
        if not all(fields):
            raise BadInput(f"{path}:{number}: found an empty column; expected {expected}")
        if "#" in (fields[0][0], fields[1][0]):
            for field in SPREADSHEET_ERRORS.intersection(map(str.lower, fields)):
                raise BadInput(
                    f"{path}:{number}: found {field.upper()}, an error of a spreadsheet; expected "
                    f"{expected}: mend or remove the row"
                )
        found.append((fields[0], second.setdefault(fields[1], fields[1])))
    if has_header and not found:
        raise BadInput(f"{path}: found a header and no rows; expected {expected}")
    if not found:
        raise _no_lines(path)
    first, *others = found[:_LOOKED_AT]
    has_digit = any(character.isdigit() for character in "".join(first))
    if others and not (has_header or has_digit):
        if any(all(map(_CODE.fullmatch, column)) for column in zip(*others, strict=True)):
            tell(
                f"warning: {path}: found {' and '.join(map(repr, first))} above codes, which is "
                f"taken for a row; expected {expected}: if it is a header, call its columns term "
                "and concept"
            )
    return found


def names_columns(fields: Sequence[str]) -> bool:
    """Whether the fields of a first line name the columns of terms and concepts."""
    lower = [field.lower() for field in fields]
    return len(lower) == 2 and lower[0] in TERM_COLUMNS and lower[1] in CONCEPT_COLUMNS


def _no_lines(path: Path) -> BadInput:
    return BadInput(f"{path}: found no lines; expected tab-separated rows: fetch or write it again")


def is_double_piped(path: Path) -> bool:
    """Whether the first line of a file has the columns of XL-BEL and SapBERT, CUI||name."""
    return not is_workbook(path) and DOUBLE_PIPE in first_line(path)


def double_piped(path: Path, expected: str, otherwise: str | None = None) -> list[tuple[str, str]]:
    """The first two fields of each line of a file such as CUI||name, or CUI||name||context,
    without a header.

    Args:
      path: the file.
      expected: the columns in words, for messages.
      otherwise: as of `decoded`.
    """
    rows = []
    for number, line in enumerate(read_text(path, otherwise).split("\n"), start=1):
        if not line.strip():
            continue
        fields = [field.strip() for field in line.split(DOUBLE_PIPE, 2)]
        if len(fields) < 2 or not all(fields[:2]):
            raise BadInput(
                f"{path}:{number}: found {line[:80]!r}; expected {expected}: mend the line, or "
                "fetch the file again"
            )
        rows.append((fields[0], fields[1]))
    if rows and names_columns(rows[0][::-1]):
        del rows[0]
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

_SEPARATORS = ("\t", ";", ",", "|")
_LOOKED_AT = 200  # rows, to tell which separator a file has
_MOST_ZEROS = 0.1  # of a text; more are another encoding, or no text
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # what Excel saves as "Unicode text"
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
      sheet: of a workbook, the sheet that was read; "" of text.
    """

    separator: str = ","
    quoted: bool = True
    bom: bool = False
    line_end: str = "\n"
    sheet: str = ""


Rows = list[tuple[int, list[str]]]
"""(line number of its beginning, fields) of each row."""


def _read_delimited(
    path: Path,
    separator: str | None = None,
    encoding: str | None = None,
    remedy: str = _GIVE_ENCODING,
    header_row: int = 1,
    otherwise: str | None = None,
) -> tuple[Dialect, Rows]:
    """The rows of a text file as they are, and its format.

    Args:
      path: the file, also as .gz.
      separator: one character; None: the one of `_SEPARATORS` that divides the header and most rows
        alike.
      encoding: as Python names it; None: UTF-8, or UTF-16 where a byte order mark says so.
      remedy: what to do about bytes that are not UTF-8 where no encoding was given, for messages.
      header_row: the first line that counts.
      otherwise: as of `decoded`, where no encoding was given.

    Raises:
      BadInput: if the file cannot be read, has other bytes, or an open quote.
    """
    content = read_bytes(path)
    text, has_bom = _text(content, str(path), encoding, remedy, otherwise)
    line_end = "\r\n" if text[: text.find("\n") + 1].endswith("\r\n") else "\n"
    text = _without_lines(text, header_row - 1)
    if header_row == 1 and (said := _SEPARATOR_LINE.match(text)):
        separator, text = separator or said[1], _without_lines(text, 1)
    text = _without_lines(text, _comments(text))
    separator = separator or _separator(text, str(path))
    if separator == "\t":
        is_quoted, found = _tab_rows(text, str(path))
    else:
        is_quoted, found = True, _rows(text, separator, str(path))
    rows = list(found)
    _tell_of_swallowed(rows, separator, str(path))
    return Dialect(separator, is_quoted, has_bom, line_end), rows


def _tell_of_swallowed(rows: Rows, separator: str, place: str) -> None:
    """Warns of a field whose further lines have as many separators as the header, or tabs: a quote
    that was opened by mistake takes rows until the next one.
    """
    width = next((len(fields) for _, fields in rows if fields), 0)
    for number, fields in rows if width > 1 else []:
        if len(fields) != width:
            continue
        for field in fields:
            lines = field.split("\n")[1:] if "\n" in field else []
            is_wide = all(line.count(separator) == width - 1 for line in lines)
            if lines and (is_wide or separator == "\t" in field):
                tell(
                    f"warning: {place}:{number}: a field in double quotes takes {len(lines):,} "
                    "further lines that look like rows; if they are, take the quote out"
                )
                return


_SEPARATOR_LINE = re.compile(r"sep=(.)\r?\n", re.IGNORECASE)  # Excel's own first line


def _without_lines(text: str, count: int) -> str:
    """The text with its first lines empty: the others keep their numbers."""
    *before, rest = text.split("\n", count)
    return "\n" * count + (rest if len(before) == count else "")


def _comments(text: str) -> int:
    """Lines of comments, which begin with #, above a table, such as SSSOM's metadata.

    A line that has as many columns as the next is a header, as CTD's "# DiseaseName" is. So is one
    without a blank behind #, above text without tabs: "#term" may head one column.
    """
    count = start = 0
    last = ""
    while text.startswith("#", start):
        end = text.find("\n", start)
        if end < 0:
            return 0
        last = text[start:end]
        count, start = count + 1, end + 1
    header = text[start : text.find("\n", start)]
    sign = max(_SEPARATORS, key=header.count)
    if not count or sign not in header:
        return 0
    is_header = header.count(sign) == last.count(sign) or (sign != "\t" and last[1:2] != " ")
    return count - is_header


def _tab_rows(text: str, place: str) -> tuple[bool, Iterable[tuple[int, list[str]]]]:
    """Whether quotes are special, and the rows: Excel quotes fields, most programs do not."""
    plain = partial(_rows, text, "\t", place, is_quoted=False)
    try:
        quoted = list(_rows(text, "\t", place))
    except BadInput:
        return False, plain()
    if any("\t" in field for _, fields in quoted for field in fields):
        width = next(len(fields) for _, fields in plain() if fields)
        rows = (fields for _, fields in plain() if fields)
        if all(len(fields) >= width and not any(fields[width:]) for fields in rows):
            return False, plain()  # else stray quotes would swallow rows
    return True, quoted


def _text(
    content: bytes, place: str, encoding: str | None, remedy: str, otherwise: str | None
) -> tuple[str, bool]:
    """The text of a file, and whether its copy should have a byte order mark."""
    if encoding is None and content.startswith(_UTF16):
        encoding = "utf-16"
    name = codec_of(encoding or "utf-8")
    is_utf8 = name in ("utf-8", "utf-8-sig")
    if encoding is not None:
        remedy = "give another --encoding, or save it as UTF-8"
    text = decoded(content, place, "utf-8-sig" if is_utf8 else name, remedy, otherwise)
    if zeros := text.count("\0"):
        line = text.count("\n", 0, text.index("\0")) + 1
        if zeros > _MOST_ZEROS * len(text):
            raise BadInput(f"{place}:{line}: found a zero byte; expected text: {remedy}")
        tell(f"warning: {place}:{line}: {zeros:,} zero bytes were left out, here the first")
        text = text.replace("\0", "")
    text = _with_line_ends(text.rstrip("\x1a"))  # DOS ended files with this sign
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
    columns: dict[str, int] = {}
    is_double = DOUBLE_PIPE in text.lstrip("\n").partition("\n")[0]  # CUI||name is another form
    signs = _SEPARATORS[:-1] if is_double else _SEPARATORS
    for separator in signs:
        counts = []
        try:
            for _, fields in islice(_rows(text, separator, place, separator != "\t"), _LOOKED_AT):
                if fields:
                    counts.append(len(fields))
        except BadInput:  # said later, if this is the separator
            pass
        is_alike = counts and 2 * counts.count(counts[0]) >= len(counts)
        columns[separator] = counts[0] if is_alike else 0
    best = max(signs, key=columns.__getitem__)
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


# A spreadsheet computes what begins with one of these signs, if it is no number and has more than
# signs. Such text gets a ' before it. So does what begins with ' and would then look like that:
# taking one ' away gives every text back. `csv.js` of the review page does the same.
_COMPUTING = r"[=+\-@\t\r\n＝＋－＠]"
_COMPUTED = rf"^'*{_COMPUTING}"
_NOT_COMPUTED = r"^(?:[+-]?\d[\d.,]*(?:[eE][+-]?\d+)?%?|[=+-]+)$"
_GUARDED = re.compile(rf"'+{_COMPUTING}")


def unguarded(field: str) -> str:
    """A field of a .csv file without the ' that keeps a spreadsheet from computing it."""
    return field[1:] if _GUARDED.match(field) else field


def _guarded(texts: pl.Series) -> pl.Series:
    """Strings with a ' before what a spreadsheet would compute."""
    is_formula = texts.str.contains(_COMPUTED) & ~texts.str.contains(_NOT_COMPUTED)
    return ("'" + texts).zip_with(is_formula, texts)


# -------------------------------------------------------------------------------------------------
# Tables with a header, read from and written to the file types that hospitals use.

_WORKBOOK = (".xlsx", ".xlsm")
_OLD_WORKBOOK = (".xls", ".ods", ".xlsb")
TABLE_ENDINGS = (".csv", ".tsv", *_WORKBOOK, *_OLD_WORKBOOK)
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
      header: the number of the header's line or row.
      width: columns of the file, with those that have no name.
    """

    path: Path
    frame: pl.DataFrame
    lines: list[int]
    dialect: Dialect
    header: int
    width: int

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

    def tell_of_dates(self, *columns: str) -> None:
        """Warns of dates in columns of a workbook: Excel makes them of codes such as 2-1."""
        for name in columns if self.dialect.sheet else ():
            is_date = self.frame[name].str.contains(_DATE)
            if count := int(is_date.sum()):
                row = is_date.arg_max() or 0
                tell(
                    f"warning: {self.path}:{self.lines[row]}: the column {name} has "
                    f"{self.frame[name][row]} ({count:,} such dates); if it was a code, such as "
                    "2-1, Excel has changed it: keep such columns as text"
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
    header_row: int | None = None,
    column: str | None = None,
) -> Table:
    """The table in a .csv, .tsv, .txt (each also as .gz) or .xlsx file.

    Empty lines are no rows, unless the table has one column; those at the end never are. Columns at
    the end that are empty, header and all, are left out.

    Args:
      path: the file. A name with another ending is read as text.
      separator: one character, of text; None: found out from header and rows.
      encoding: of text, as Python names it; None: UTF-8.
      sheet: name of the sheet of a workbook; None: the first that is not hidden.
      header_row: number of the line or row of the header; None: the first that is not empty.
      column: a column of the header, where it is known: of the first rows, the header is the one
        that has it. Titles above it are left aside.

    Raises:
      BadInput: if it cannot be read, has no rows, two columns of one name, or a row with other
        columns than its header, with file and line.
    """

    def read(first: int) -> tuple[Dialect, Rows]:
        return read_rows(
            path, separator=separator, encoding=encoding, sheet=sheet, header_row=first
        )

    first = header_row or 1
    dialect, rows = read(first)
    if header_row is None and column is not None:
        wanted = folded(column)
        first = header_below(rows, dialect.separator, lambda names: wanted in map(folded, names))
        if first > 1:
            tell(
                f"{path}: the header is row {first}, which has {column!r}; what stands above it is "
                "left aside (--header-row names another)"
            )
            is_text = not dialect.sheet  # whose separator may have been found in the titles
            dialect, rows = (
                read(first) if is_text else (dialect, [row for row in rows if row[0] >= first])
            )
    if header_row is not None and (not rows or rows[0][0] != first or is_empty(rows[0][1])):
        raise BadInput(f"{path}: found nothing in row {first}; expected the header there")
    return table_of(path, dialect, rows)


_TITLES = 20  # rows above a header, at most


def header_below(rows: Rows, separator: str, is_header: Callable[[list[str]], bool]) -> int:
    """The number of the row that is the header, where titles stand above it; else 1.

    The separator may be wrong: it was found with the titles.
    """
    filled = (row for row in rows if not is_empty(row[1]))
    for place, (number, fields) in enumerate(islice(filled, _TITLES)):
        texts = [fields, *(separator.join(fields).split(sign) for sign in _SEPARATORS)]
        if any(is_header([field.strip(' "') for field in text]) for text in texts):
            return number if place else 1
    return 1


def read_rows(
    path: Path,
    *,
    separator: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
    remedy: str = _GIVE_ENCODING,
    header_row: int = 1,
    otherwise: str | None = None,
) -> tuple[Dialect, Rows]:
    """As `read_table`, but all rows as they are, the header first.

    `remedy` says what to do about bytes that are not UTF-8, where no encoding was given, and
    `otherwise` is an encoding to try then.
    """
    if path.name.lower().endswith(_OLD_WORKBOOK):
        raise BadInput(f"{path}: found {path.suffix}; expected .xlsx, .csv or .tsv: save it as one")
    if sheet is not None and not is_workbook(path):
        raise BadInput(f"{path}: found --sheet {sheet}; expected a workbook (.xlsx): leave it out")
    if separator is not None and len(separator.encode()) != 1:  # polars writes one byte
        raise BadInput(
            f"--separator: found {separator!r}; expected one character of ASCII, such as ';': save "
            "the file with that"
        )
    if is_workbook(path):
        title, rows = _read_workbook(path, sheet)
        rows = [row for row in rows if row[0] >= header_row]
        # Excel takes a .csv for the encoding of its country, unless it has a byte order mark.
        return Dialect(separator or ",", bom=True, line_end="\r\n", sheet=title), rows
    dialect, rows = _read_delimited(path, separator, encoding, remedy, header_row, otherwise)
    return dialect, [row for row in rows if row[0] >= header_row]


def is_workbook(path: Path) -> bool:
    return path.name.lower().endswith(_WORKBOOK)


def table_of(path: Path, dialect: Dialect, rows: Rows) -> Table:
    """A table made of rows, of which the first that is not empty is the header."""
    filled = [place for place, (_, fields) in enumerate(rows) if not is_empty(fields)]
    if len(filled) < 2:
        what = "a header and no rows" if filled else "no rows"
        raise BadInput(f"{path}: found {what}; expected a header and the rows below it")
    first, last = filled[0], filled[-1]
    (place, header), rows = rows[first], rows[first + 1 : last + 1]
    if len(header) > 1:
        rows = [row for row in rows if not is_empty(row[1])]
    for number, fields in rows:
        if len(fields) < len(header) > 1 or any(fields[len(header) :]):
            raise BadInput(
                f"{path}:{number}: found {len(fields)} columns; expected the {len(header)} of the "
                f"header ({listed(header)}): mend the row, quote a field with the separator in it, "
                "or save the table as .xlsx"
            )
    kept = list(range(len(header)))
    if dialect.sheet:
        kept = _named(path, place, header, rows)
    while not header[kept[-1]] and not any("".join(fields[kept[-1] :]) for _, fields in rows):
        kept.pop()
    names = [header[column] for column in kept]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise BadInput(
            f"{path}: found more than one column {twice[0] or '(no name)'!r}; expected names that "
            "differ: rename one in the header"
        )
    columns = {
        name: [fields[column] if fields else "" for _, fields in rows]
        for column, name in zip(kept, names, strict=True)
    }
    frame = pl.DataFrame(columns, schema=dict.fromkeys(names, pl.String))
    return Table(path, frame, [number for number, _ in rows], dialect, place, len(header))


def _named(path: Path, place: int, header: list[str], rows: Rows) -> list[int]:
    """The columns of a sheet that have a name; what stands in others is said."""
    from openpyxl.utils import get_column_letter

    stray = [
        f"{get_column_letter(column + 1)}{number}"
        for number, fields in rows
        for column, field in enumerate(fields)
        if field and not header[column].strip()
    ]
    kept = [column for column, name in enumerate(header) if name.strip()]
    if stray:
        more = f" and {len(stray) - 1:,} more" if len(stray) > 1 else ""
        tell(
            f"{path}: cell {stray[0]}{more}: the column has no name in the header (row {place}), "
            "so it is left aside"
        )
    return kept


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

    .csv has the separator of the dialect if that is another than a tab, else commas, and a ' before
    what a spreadsheet would compute (`unguarded` takes it off); .tsv and .txt have tabs, and text
    as it is; .xlsx is a workbook of text cells. Text is UTF-8.

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
    else:
        if dialect.separator == "\t":
            dialect = replace(dialect, separator=",", quoted=True)
        names = _guarded(pl.Series(frame.columns)).to_list()
        frame = pl.DataFrame(dict(zip(names, map(_guarded, frame), strict=True)))
    with written_whole(path) as unfinished:
        if ending == ".xlsx" and not is_stream(path):
            _write_workbook(unfinished, frame)
        else:
            _write_delimited(unfinished, frame, dialect)


def write_with_columns(
    path: Path,
    table: Table,
    rows: Sequence[int],
    added: pl.DataFrame,
    numbers: Collection[str] = (),
) -> None:
    """Writes a table again, with columns added, atomically.

    A workbook made of a workbook is a copy of it: its other sheets, formats and numbers stay. In
    the sheet that was read, formulas become what they last computed. Where rows are written more
    than once, that sheet stays, too, and all rows are in a new one before the others. All else is
    as of `write_table`.

    Args:
      path: the file to write.
      table: as it was read.
      rows: of the table, for each row of `added`: ascending, each once or more.
      added: strings, null as "".
      numbers: columns of `added` that a workbook holds as numbers.

    Raises:
      BadInput: as `write_table`, or if the workbook cannot be copied.
    """
    if path.suffix.lower() == ".xlsx" and table.dialect.sheet and not is_stream(path):
        with written_whole(path) as unfinished:
            _extend_workbook(unfinished, table, rows, added, numbers)
    else:
        write_table(path, pl.concat([table.frame[rows], added], how="horizontal"), table.dialect)


# -------------------------------------------------------------------------------------------------
# Excel workbooks (.xlsx): rows of strings with their row numbers, and the writer.

# What spreadsheets show in the place of a value, in English, German, French and other languages.
SPREADSHEET_ERRORS = frozenset(
    "#n/a #ref! #name? #value! #div/0! #num! #null! #spill! #calc! #getting_data #n/d #nd"
    " #nv #bezug! #wert! #zahl! #überlauf! #valeur! #nom? #nombre! #nul! #¡ref! #¿nombre? #¡valor!"
    " #¡div/0! #¡num! #¡nulo! #!valor! #!num! #nome? #rif! #valore! #verw!"
    " #naam? #namn? #navn? #nazwa? #název?".split()
)
_MOST_ROWS, _MOST_CHARACTERS = 1_048_576, 32_767  # of a sheet, of a cell
_EXACT = 10**15  # Excel keeps 15 digits of a number
_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")  # how a workbook writes what XML cannot hold
_TO_ESCAPE = re.compile(r"[\x00-\x08\x0b-\x1f\ufffe\uffff]|_(?=x[0-9A-Fa-f]{4}_)")
# The signs of a number format: colours, countries and room that are not shown, text, and others.
_SIGN = re.compile(r'\[[^]]*\]|[_*].|\\(.)|"([^"]*)"|(.)')
# Those of one that shows all digits, perhaps with signs between them: 0000, 000-0, #00 or 0.00.
_ALL_DIGITS = re.compile(r"([-/ #?0]*0[-/ #?0]*)(?:\.(0+)[-/ ]*)?")
_DATE = r"^\d{4}-\d\d-\d\d(?: |$)"


def _read_workbook(path: Path, sheet: str | None = None) -> tuple[str, Rows]:
    """The name of a sheet, and its rows as strings, padded to the length of the longest row.

    Numbers are as they are shown where zeros say so (a cell 123 in the format 0000 is "0123"), and
    else as short as they can be: 123, not 123.0. Dates are 2024-01-31, with a time if they have
    one. Of a formula it is what was last computed. Each row of a merged cell has its value.

    Args:
      path: the workbook.
      sheet: name of the sheet; None: the first that is not hidden, which is said if there are more.

    Raises:
      BadInput: if it cannot be read, or has no such sheet.
    """
    import openpyxl

    try:
        with _workbook_file(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles and checks of input that are not read
            workbook = openpyxl.load_workbook(file, read_only=True, data_only=True)
            found = _sheet(workbook, path, sheet)
            rows = _sheet_rows(found, path)
            with zipfile.ZipFile(file) as archive:
                xml = archive.read(found._worksheet_path)
            _tell_of_formulas(xml, path)
            return found.title, _filled_below(rows, xml)
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
    shown = [one.title for one in workbook.worksheets if one.sheet_state == "visible"] or names
    if name is None and len(names) > 1:
        hidden = [one for one in names if one not in shown]
        aside = f" ({', '.join(hidden)} hidden)" if hidden else ""
        tell(
            f"{path}: reading the sheet {shown[0]!r}, the first of {', '.join(shown)}{aside}; "
            "`normalize` reads another one of its list with --sheet"
        )
    return workbook[name or shown[0]]


# What "Strict Open XML Spreadsheet" writes, and what openpyxl knows.
_STRICT = b"http://purl.oclc.org/ooxml/"
_KNOWN = b"http://schemas.openxmlformats.org/"
_TRANSITIONAL = (
    (_STRICT + b"spreadsheetml/main", _KNOWN + b"spreadsheetml/2006/main"),
    (_STRICT + b"drawingml/main", _KNOWN + b"drawingml/2006/main"),
    (_STRICT + b"officeDocument/", _KNOWN + b"officeDocument/2006/"),
)


@contextmanager
def _workbook_file(path: Path) -> Iterator[IO[bytes]]:
    """A workbook that openpyxl can read; BadInput if it unpacks to too much."""
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        parts = zip_members(archive, str(path), lambda _: True)
        is_strict = "xl/workbook.xml" in archive.namelist() and _STRICT in archive.read(
            "xl/workbook.xml"
        )
        if not is_strict:
            yield file
            return
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as copy:
            for part in parts:
                text = archive.read(part)
                if part.filename.endswith((".xml", ".rels")):
                    for strict, known in _TRANSITIONAL:
                        text = text.replace(strict, known)
                copy.writestr(part.filename, text)
        yield content


_MERGED = re.compile(rb"<(?:\w+:)?mergeCell\s[^>]*?ref=\"([A-Z]+)(\d+):[A-Z]+(\d+)\"")
_FORMULA = re.compile(
    rb"<(?:\w+:)?c\s(?![^>]*\bt=\"str\")(?:[^>]*\s)?r=\"([A-Z]+\d+)\"[^>]*>"
    rb"<(?:\w+:)?f(?:\s[^>]*)?(?:/>|>[^<]*</(?:\w+:)?f>)"
    rb"(?:<(?:\w+:)?v\s*/>|<(?:\w+:)?v></(?:\w+:)?v>)?</(?:\w+:)?c>"
)


def _tell_of_formulas(xml: bytes, path: Path) -> None:
    """Warns of formulas that no program has computed: they read as empty.

    One with the type "str" was computed, to an empty text.
    """
    if found := _FORMULA.findall(xml):
        tell(
            f"warning: {path}: {len(found):,} formulas were never computed, the first in "
            f"{found[0].decode()}, so their cells are empty: open it in Excel and save it again"
        )


def _filled_below(rows: Rows, xml: bytes) -> Rows:
    """The rows, with the value of a merged cell in each of its rows."""
    from openpyxl.utils import column_index_from_string

    place = {number: row for row, (number, _) in enumerate(rows)}
    for letters, *ends in _MERGED.findall(xml):
        column, (first, last) = column_index_from_string(letters.decode()), map(int, ends)
        if first in place and column <= len(rows[place[first]][1]):
            value = rows[place[first]][1][column - 1]
            for number in range(first + 1, min(last, rows[-1][0]) + 1):
                rows[place[number]][1][column - 1] = value
    return rows


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
        return _number(value, number_format)
    if isinstance(value, datetime.timedelta):
        seconds = round(value.total_seconds())
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if isinstance(value, datetime.datetime):
        return str(value if value.time() != datetime.time() else value.date())
    return str(value)


def _number(value: float, number_format: str) -> str:
    """A number as its format shows it (32 is "003-2" in 000-0), or as short as it can be."""
    groups = (match.groups(default="") for match in _SIGN.finditer(number_format))
    signs = list(takewhile(lambda group: group[2] != ";", groups))  # the first of several formats
    form = _ALL_DIGITS.fullmatch("".join(bare for *_, bare in signs))
    if form is None:
        return str(int(value)) if value == int(value) else f"{value:.15g}"
    places = re.sub("[-/ ]", "", form[1])
    unit = Decimal(1).scaleb(-len(form[2] or ""))
    digits_of_all = Context(prec=400)  # a number may have 308 before the point
    exact = Decimal(repr(abs(value))).quantize(unit, ROUND_HALF_UP, digits_of_all)  # as Excel does
    digits, _, decimals = f"{exact:f}".partition(".")
    digits = digits.zfill(len(places) - places.index("0")).rjust(len(places))
    shown, left = "-" if value < 0 and exact else "", len(places)
    for *text, bare in signs:
        if bare and bare in "0#?":
            cut = len(digits) - left + 1  # the first place takes what is longer
            shown, digits, left = shown + digits[:cut].strip(), digits[cut:], left - 1
            continue
        if bare == ".":
            digits, left = decimals, len(decimals)
        shown += "".join(text) + bare
    return shown.strip()


def _has_lost_digits(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) >= _EXACT


def check_room(frame: pl.DataFrame, times: int = 1) -> None:
    """Raise BadInput for a table of strings that a workbook has no room for.

    Args:
      frame: the table.
      times: each row may be written so often; a warning says if that may be too much.
    """
    if frame.height >= _MOST_ROWS:
        raise BadInput(
            f"{frame.height:,} rows; an Excel sheet has room for {_MOST_ROWS - 1:,} and their "
            "header: write .csv or .tsv"
        )
    for column in frame:
        if (longest := column.str.len_chars().arg_max()) is not None:
            _escaped(column[longest], longest + 2)
    if frame.height * times >= _MOST_ROWS:
        tell(
            f"warning: {frame.height:,} rows, each up to {times} times, may be more than the "
            f"{_MOST_ROWS - 1:,} for which an Excel sheet has room: write .csv or .tsv"
        )


def _write_workbook(path: Path, frame: pl.DataFrame) -> None:
    """Writes a table of strings as the only sheet of a workbook, its header first.

    All cells are text: one that begins with "=" is no formula, and 0123 keeps its zero.

    Raises:
      BadInput: for more rows or characters than Excel has room for; nothing is written then.
    """
    import openpyxl
    from openpyxl.cell import WriteOnlyCell

    check_room(frame)
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


def _extend_workbook(
    path: Path, table: Table, rows: Sequence[int], added: pl.DataFrame, numbers: Collection[str]
) -> None:
    """Writes a copy of the table's workbook with columns added, as `write_with_columns` says."""
    import openpyxl

    try:
        with _workbook_file(table.path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            workbook = openpyxl.load_workbook(file)
            computed = openpyxl.load_workbook(file, data_only=True)[table.dialect.sheet]
    except Exception as error:  # as when it is read
        raise BadInput(
            f"{table.path}: cannot be copied ({type(error).__name__}: {error}); give --out a name "
            "that ends in .csv, or open it in Excel and save it again"
        ) from error
    sheet: Any = workbook[table.dialect.sheet]
    header, lines = table.header, [table.lines[row] for row in rows]
    if len(rows) > len(table.lines):
        header, lines = 1, list(range(2, len(rows) + 2))
        if lines[-1] > _MOST_ROWS:
            raise BadInput(
                f"{lines[-1]:,} rows; an Excel sheet has room for {_MOST_ROWS:,}: write .csv or "
                ".tsv"
            )
        sheet = _coded_sheet(workbook, computed, table, rows)
    else:
        for cells in sheet.iter_rows():
            for cell in cells:
                value = computed[cell.coordinate].value if cell.data_type == "f" else None
                if value is not None:
                    cell.value = value
    for merged in list(sheet.merged_cells.ranges):  # of a heading across the whole sheet
        if merged.max_col > table.width and merged.max_row >= header:
            sheet.unmerge_cells(str(merged))
    for column, name in enumerate(added.columns, start=table.width + 1):
        named = sheet.cell(header, column)
        named.value = name
        named._style = copy(sheet.cell(header, table.width)._style)
        for line, field in zip(lines, added[name], strict=True):
            if not field:
                continue
            cell = sheet.cell(line, column)
            if name in numbers:
                cell.value = float(field)
            else:
                cell.value = _escaped(field, line)
                cell.data_type = "s"  # else "=1+1" would be a formula
    workbook.save(path)


def _coded_sheet(workbook: Any, computed: Any, table: Table, rows: Sequence[int]) -> Any:
    """A new first sheet with the header and `rows` of the table, some of them more than once.

    The table's own sheet stays: comments, links, hidden rows and other sheets' formulas belong to
    its rows.
    """
    for merged in [one for one in computed.merged_cells.ranges if one.max_row > table.header]:
        value = computed.cell(merged.min_row, merged.min_col).value
        computed.unmerge_cells(str(merged))
        for line in range(merged.min_row, merged.max_row + 1):
            computed.cell(line, merged.min_col).value = value
    own, sheet = workbook[table.dialect.sheet], workbook.create_sheet("coded", 0)
    workbook.active = 0
    for one in workbook.worksheets:  # or Excel would type into both
        one.sheet_view.tabSelected = one is sheet
    for letters, column in own.column_dimensions.items():
        sheet.column_dimensions[letters].width = column.width
    for line, source in enumerate([table.header, *(table.lines[row] for row in rows)], start=1):
        for column in range(1, table.width + 1):
            cell, held = sheet.cell(line, column), computed.cell(source, column)
            cell.value, cell.data_type = held.value, held.data_type
            cell._style = copy(own.cell(source, column)._style)
    return sheet


def _escaped(text: str, row: int) -> str:
    """The text, escaped for a cell; BadInput if it is too long."""
    escaped = _TO_ESCAPE.sub(lambda match: f"_x{ord(match[0]):04X}_", text)
    if len(escaped) > _MOST_CHARACTERS:
        raise BadInput(
            f"row {row:,}: {text[:40]!r}... has {len(text):,} characters; a cell of Excel has room "
            f"for {_MOST_CHARACTERS:,}: write .csv or .tsv"
        )
    return escaped
