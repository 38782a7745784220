"""Text files of an evaluation -> rows of fields with their line numbers; hashes of rows."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from data_pipeline.files.bounds import bounded_lines, check_lines
from data_pipeline.process.errors import BadInput

# Joins several concepts of one mention or term in one field.
CONCEPT_SEPARATOR = "|"
DOUBLE_PIPE = "||"  # between the columns of XL-BEL's files
# First lines that name the columns, lower-cased: they are skipped.
TERM_COLUMNS = {"mention", "term", "name", "string"}
CONCEPT_COLUMNS = {"cui", "cuis", "concept", "concept_id", "code", "id"}


def split_concepts(joined: str) -> list[str]:
    """The concepts of one field of a dictionary or of gold, in their order."""
    return joined.split(CONCEPT_SEPARATOR)


def read_text(path: Path) -> str:
    """The text of a UTF-8 file (a byte order mark is dropped); BadInput if it is not one."""
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
    """Text of UTF-8, a byte order mark dropped, or of another encoding.

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
    """(line number, fields without blanks around them) of each line that is not empty.

    Lines end at a newline only: terms may hold other characters that Python takes for line ends.
    Quotes are ordinary characters.
    """
    rows = list(_rows(path))
    if not rows:
        raise _no_lines(path)
    return rows


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """As `tab_separated`, one after the other: a dictionary has millions."""
    text, number, start = read_text(path), 0, 0
    while start <= len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        line, number, start = text[start:end], number + 1, end + 1
        if line.strip():
            yield number, [field.strip() for field in line.split("\t")]


def two_columns(path: Path, expected: str) -> list[tuple[str, str]]:
    """The rows of a file with two columns, its header left out.

    Args:
      path: the file.
      expected: the columns in words, for messages, such as "mention<TAB>CUI".
    """
    found: list[tuple[str, str]] = []
    second: dict[str, str] = {}  # equal concepts as one object
    has_header = False
    for number, fields in _rows(path):
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
    """The first `columns` fields of each line of CUI||name, CUI||name||context, ...

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
    """`content_hash` of the distinct ones of many rows, and how many these are."""
    lines = sorted("\t".join(row) for row in rows)
    digest, count, last = hashlib.sha256(), 0, None
    for line in lines:
        if line != last:
            digest.update(line.encode() + b"\n")
            count, last = count + 1, line
    return digest.hexdigest(), count


def content_hash(rows: Iterable[Sequence[str]]) -> str:
    """SHA-256 of rows of strings, whatever their order."""
    digest = hashlib.sha256()
    for line in sorted("\t".join(row) for row in rows):
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()
