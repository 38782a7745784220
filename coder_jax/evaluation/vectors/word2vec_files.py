"""Files of word or concept vectors in, a table of the vectors that are wanted out.

- word2vec binary: "count width" and a line break, then each key, a blank and its float32 values;
- word2vec text: "count width", then a line for each key, blanks between the values; or, as GloVe
  has it, without the first line;
- CSV (cui2vec): a header, then "key",value,value,...

Any may be packed as .gz. Only the keys that are wanted are kept in memory.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from data_pipeline.files.bounds import bounded_lines
from data_pipeline.process import stopping
from data_pipeline.process.errors import BadInput

READ_BYTES = 1 << 22
MOST_KEY_BYTES = 1 << 12
MOST_WIDTH = 100_000
POLL_ROWS = 1 << 14


@dataclass(frozen=True)
class VectorTable:
    """Vectors of keys.

    Attributes:
      row_of: key -> row of `vectors`; the first of equal keys counts.
      vectors: float32 [rows, width].
      in_file: vectors in the file, wanted or not.
      file_hash: SHA-256 of the file.
    """

    row_of: dict[str, int]
    vectors: np.ndarray
    in_file: int
    file_hash: str
    path: str


def read_vector_file(path: str | Path, wanted: set[str]) -> VectorTable:
    """Reads the wanted keys of a file in any of the formats above.

    Raises:
      BadInput: the file is of none of them, is cut off or longer than its first line says, or a
        vector has the wrong width or values that are not finite numbers.
      Stopped: a signal asked for it.
    """
    path = Path(path)
    try:
        with opened(path) as file:
            rows = rows_of(file, path)
            row_of: dict[str, int] = {}
            kept: list[np.ndarray] = []
            in_file = 0
            for in_file, (key, parse) in enumerate(rows, start=1):
                if in_file % POLL_ROWS == 0:
                    stopping.poll()
                if key in wanted and key not in row_of:
                    row_of[key] = len(kept)
                    kept.append(parse())
        with path.open("rb") as plain:
            file_hash = hashlib.file_digest(plain, "sha256").hexdigest()
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path}: cannot be read ({error}); give an existing, whole file") from error
    if not kept:
        raise BadInput(
            f"{path}: found {in_file:,} vectors, none of a word or concept of the benchmarks (such "
            f"as {min(wanted, default='')!r}); expected vectors of the same words or concepts"
        )
    return VectorTable(row_of, np.stack(kept), in_file, file_hash, str(path))


def opened(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


Row = tuple[str, Callable[[], np.ndarray]]  # a key, and what makes its vector


def rows_of(file: IO[bytes], path: Path) -> Iterator[Row]:
    """The rows of a file, told by its first bytes."""
    if path.name.removesuffix(".gz").endswith(".csv"):
        file.readline(READ_BYTES)
        return text_rows(file, path, 2, None, b",")
    first = file.readline(READ_BYTES)
    numbers = first.split()
    if len(numbers) == 2 and all(number.isdigit() for number in numbers):
        count, width = int(numbers[0]), int(numbers[1])
        if width > MOST_WIDTH:
            raise BadInput(
                f"{path}:1: found vectors of {width:,} values; expected at most {MOST_WIDTH:,}: "
                "fetch the file again"
            )
        start = file.tell()
        after = file.read(READ_BYTES).lstrip()  # in a text file empty lines do not count
        file.seek(start)
        if is_text(after.split(b"\n", 1)[0], width):
            return text_rows(file, path, 2, width, b" ", count)
        return binary_rows(file, path, count, width)
    file.seek(0)
    if len(numbers) > 2 and is_text(first, first.rstrip().count(b" ")):
        return text_rows(file, path, 1, None, b" ")
    raise BadInput(
        f"{path}:1: found {first[:60]!r}; expected vectors: word2vec's text or binary format, "
        "which begin with 'count width', lines of a key and numbers, or cui2vec's .csv"
    )


def is_text(line: bytes, width: int) -> bool:
    """Whether a line is a key and `width` numbers."""
    fields = line.rstrip().rsplit(b" ", width)
    try:
        return len(fields) == width + 1 and all(np.isfinite(float(f)) for f in fields[1:])
    except ValueError:
        return False


def text_rows(
    file: IO[bytes],
    path: Path,
    first: int,
    width: int | None,
    between: bytes,
    count: int | None = None,
) -> Iterator[Row]:
    """Rows of text; `first` is the number of the first line, `width` that of its vector if None."""
    found = 0
    for number, line in enumerate(bounded_lines(file, str(path), first), start=first):
        stripped = line.rstrip()
        if not stripped:
            continue
        if found == count:
            raise longer(f"{path}:{number}", count)
        found += 1
        if width is None:
            width = stripped.count(between)
        fields = stripped.rsplit(between, width)
        if len(fields) != width + 1:
            raise BadInput(
                f"{path}:{number}: found {len(fields) - 1} values; expected {width}, as before: "
                "the file may be cut off"
            )
        quoted = fields[0].strip(b'"') if between == b"," else fields[0]
        key = quoted.decode("utf-8", errors="replace")
        yield key, partial(numbers_of, fields[1:], f"{path}:{number}")
    if count is not None and found < count:
        raise BadInput(
            f"{path}: found {found:,} of {count:,} vectors; it is cut off: fetch it again"
        )


def numbers_of(fields: Sequence[bytes], place: str) -> np.ndarray:
    try:
        values = np.array([float(field) for field in fields], np.float32)
    except ValueError as error:
        raise BadInput(
            f"{place}: found a value that is no number ({error}); expected numbers: mend the line, "
            "or fetch the file again"
        ) from error
    return finite(values, place)


def floats_of(values: bytes, place: str) -> np.ndarray:
    return finite(np.frombuffer(values, "<f4").astype(np.float32), place)


def finite(values: np.ndarray, place: str) -> np.ndarray:
    if not np.isfinite(values).all():
        raise BadInput(
            f"{place}: found NaN or infinite values; expected finite numbers: mend this vector, or "
            "fetch the file again"
        )
    return values


def binary_rows(file: IO[bytes], path: Path, count: int, width: int) -> Iterator[Row]:
    """Rows of word2vec's binary format."""
    buffer, place, size = b"", 0, 4 * width
    for number in range(1, count + 1):
        end = buffer.find(b" ", place)
        while end < 0 or end + 1 + size > len(buffer):
            more = file.read(READ_BYTES)
            if not more or (end < 0 and len(buffer) - place > MOST_KEY_BYTES):
                raise BadInput(
                    f"{path}: found {number - 1:,} of {count:,} vectors of {width} values; it is "
                    "cut off or not in word2vec's binary format: fetch it again"
                )
            buffer, place = buffer[place:] + more, 0
            end = buffer.find(b" ", place)
        key = buffer[place:end].lstrip(b"\n").decode("utf-8", errors="replace")
        values = buffer[end + 1 : end + 1 + size]
        place = end + 1 + size
        yield key, partial(floats_of, values, f"{path}, vector {number}")
    if (buffer[place:] + file.read(READ_BYTES)).strip():
        raise longer(str(path), count)


def longer(place: str, count: int) -> BadInput:
    return BadInput(
        f"{place}: found more than the {count:,} vectors that the first line counts; expected no "
        "more: correct the first line, or fetch the file again"
    )
