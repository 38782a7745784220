"""Bounds of what a file may ask for: the length of its lines, and what an archive unpacks to.

A damaged or malicious file of some megabytes must not take the memory of a machine.
"""

import gzip
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO

from data_pipeline.process.errors import BadInput

LONGEST_LINE = 1 << 20  # bytes; the longest of a UMLS has some ten thousand
MOST_TIMES = 200  # as large as packed; terminologies unpack to 5 to 20 times their size
ALWAYS_FINE = 64 << 20  # bytes


def check_lines(content: bytes, place: str) -> None:
    """BadInput if a text has a line of more than 2 * LONGEST_LINE; it may miss shorter ones."""
    for start in range(0, len(content) - LONGEST_LINE, LONGEST_LINE):
        if content.find(b"\n", start, start + LONGEST_LINE) < 0:
            raise too_long(place, content.count(b"\n", 0, start) + 1)


def bounded_lines(file: IO[bytes], place: str, first: int = 1) -> Iterator[bytes]:
    """The lines of a file with their ends; `first` is the number of the first, for messages.

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
    """BadInput if something packed unpacks to far more than any text does.

    Args:
        place: for the message.
        packed, unpacked: bytes; while it is unpacked, those so far.
    """
    if unpacked > max(ALWAYS_FINE, MOST_TIMES * packed):
        raise BadInput(
            f"{place} unpacks to {unpacked / 1e6:,.0f} MB or more, from {packed / 1e6:,.1f} MB; "
            f"expected at most {MOST_TIMES} times as much, as of any text: see whether the file "
            "is what its name says, or fetch it again"
        )


def unpacked(path: Path) -> bytes:
    """What a .gz file holds; BadInput if it is damaged, or holds far more than any text would."""
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
