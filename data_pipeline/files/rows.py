"""Text files of an evaluation -> rows of fields with their line numbers; hashes of rows."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from data_pipeline.process.errors import BadInput

# Joins several concepts of one mention or term in one field.
CONCEPT_SEPARATOR = "|"
DOUBLE_PIPE = "||"  # between the columns of XL-BEL's files
# First lines that name the columns, lower-cased: they are skipped.
TERM_COLUMNS = {"mention", "term", "name", "string"}
CONCEPT_COLUMNS = {"cui", "cuis", "concept", "concept_id", "code", "id"}


def read_text(path: Path) -> str:
    """The text of a UTF-8 file (a byte order mark is dropped); BadInput if it is not one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    return decoded(content, str(path))


def unreadable(path: Path, error: OSError) -> BadInput:
    return BadInput(f"{path}: cannot be read ({error.strerror}); give an existing file")


def decoded(content: bytes, place: str) -> str:
    """Text of UTF-8, a byte order mark dropped; `place` names it in messages."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInput(
            f"{place}:{line}: found byte 0x{content[error.start]:02x}, which is not UTF-8; "
            "fetch the file again, or convert it to UTF-8"
        ) from error


def tab_separated(path: Path) -> list[tuple[int, list[str]]]:
    """(line number, fields without blanks around them) of each line that is not empty.

    Lines end at a newline only: terms may hold other characters that Python takes for line ends.
    Quotes are ordinary characters.
    """
    rows = [
        (number, [field.strip() for field in line.split("\t")])
        for number, line in enumerate(read_text(path).split("\n"), start=1)
        if line.strip()
    ]
    if not rows:
        raise BadInput(
            f"{path}: found no lines; expected tab-separated rows: fetch or write it again"
        )
    return rows


def two_columns(path: Path, expected: str) -> list[tuple[str, str]]:
    """The rows of a file with two columns, its header left out.

    Args:
      path: the file.
      expected: the columns in words, for messages, such as "mention<TAB>CUI".
    """
    rows = tab_separated(path)
    first = [field.lower() for field in rows[0][1]]
    if len(first) == 2 and first[0] in TERM_COLUMNS and first[1] in CONCEPT_COLUMNS:
        rows = rows[1:]
    if not rows:
        raise BadInput(f"{path}: found a header and no rows; expected {expected}")
    for number, fields in rows:
        if len(fields) != 2:
            raise BadInput(f"{path}:{number}: found {len(fields)} columns; expected 2: {expected}")
        if not all(fields):
            raise BadInput(f"{path}:{number}: found an empty column; expected {expected}")
    return [(fields[0], fields[1]) for _, fields in rows]


def is_double_piped(path: Path) -> bool:
    """Whether the first line of a file has the columns of XL-BEL and SapBERT, CUI||name."""
    try:
        with path.open("rb") as file:
            return DOUBLE_PIPE.encode() in file.readline()
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


def content_hash(rows: Iterable[Sequence[str]]) -> str:
    """SHA-256 of rows of strings, whatever their order."""
    digest = hashlib.sha256()
    for line in sorted("\t".join(row) for row in rows):
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()
