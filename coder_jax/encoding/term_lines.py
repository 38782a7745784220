"""Terms to encode in, numbered chunks of them out, with their number and hash.

A file of one term per line is read through once, to count, hash and check its lines, and then chunk
by chunk: however many terms there are, one chunk is in memory.
"""

from __future__ import annotations

import hashlib
import os
import select
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, BinaryIO

from data_pipeline.files.bounds import bounded_lines
from data_pipeline.process import stopping
from data_pipeline.process.errors import BadInput

TERMS_PER_CHUNK = 1 << 16  # encoded and written at a time: what a kill may lose
POLL_SECONDS = 0.5
SOME_BYTES = 1 << 16


class TermLines:
    """The lines of a file in UTF-8. A byte order mark and carriage returns are dropped.

    Attributes:
      count: lines; an empty line is an empty term.
      hash: SHA-256 of the terms in their order, each with a newline behind it.
      chunks: how many there are of `per_chunk` terms, the last one of what is left.
    """

    def __init__(self, file: BinaryIO, name: str, per_chunk: int):
        """Reads a file that can be sought in; `name` is for messages.

        Raises:
          BadInput: a line is not UTF-8, or longer than any term.
          Stopped: a signal asked for it.
        """
        self._file, self._name, self.per_chunk = file, name, per_chunk
        self._starts, self.count = [0], 0
        digest = hashlib.sha256()
        file.seek(0)
        bounded = bounded_lines(file, name)
        while lines := list(islice(bounded, per_chunk)):
            stopping.poll()
            content = b"".join(lines)
            update(digest, decode(content, name, self.count + 1))
            self.count += len(lines)
            self._starts.append(self._starts[-1] + len(content))
        self.chunks = len(self._starts) - 1
        self.hash = digest.hexdigest()

    def chunk(self, number: int) -> list[str]:
        """The terms of one chunk, from 0 on."""
        start, end = self._starts[number : number + 2]
        self._file.seek(start)
        return decode(self._file.read(end - start), self._name, number * self.per_chunk + 1)


class TermList:
    """As `TermLines`, of terms that are in memory."""

    def __init__(self, terms: Sequence[str], per_chunk: int):
        self._terms, self.per_chunk = terms, per_chunk
        self.count, self.chunks = len(terms), -(-len(terms) // per_chunk)
        self.hash = terms_hash(terms)

    def chunk(self, number: int) -> list[str]:
        """The terms of one chunk, from 0 on."""
        return list(self._terms[number * self.per_chunk : (number + 1) * self.per_chunk])


Terms = TermLines | TermList


def strings_of(given: Iterable[str], expected: str = "strings, one after the other") -> list[str]:
    """The strings of whatever has some in an order: a list, a generator, an array, a Series.

    Args:
      given: strings.
      expected: what they are, for messages.

    Raises:
      BadInput: they have no order, or are no strings, or it is a table.
    """
    found: Any = given
    if hasattr(found, "columns"):
        raise BadInput(
            f"found a {type(found).__name__}; expected {expected}: give one of its columns, such "
            "as frame['term']"
        )
    if isinstance(found, set | frozenset | Mapping):
        raise BadInput(
            f"found a {type(found).__name__}, which is no row of strings; expected {expected}: "
            "give a list of them, such as sorted(strings)"
        )
    wrong = isinstance(found, str | bytes) or getattr(found, "ndim", 1) != 1
    if wrong or not isinstance(found, Iterable):
        raise BadInput(
            f"found {type(found).__name__} {str(found)[:60]!r}; expected {expected}: a list, a "
            "generator, a one-dimensional array or a Series"
        )
    strings = list(found)
    for place, one in enumerate(strings):
        if not isinstance(one, str):
            raise BadInput(
                f"found {type(one).__name__} {str(one)[:60]!r} at place {place} (counted from 0); "
                f"expected {expected}, and no value missing"
            )
    return strings


def terms_hash(terms: Sequence[str]) -> str:
    """SHA-256 of terms in their order, each with a newline behind it."""
    digest = hashlib.sha256()
    for first in range(0, len(terms), 1 << 16):
        update(digest, terms[first : first + (1 << 16)])
    return digest.hexdigest()


def update(digest: hashlib._Hash, terms: Sequence[str]) -> None:
    """Adds terms to a hash."""
    digest.update("".join(f"{term}\n" for term in terms).encode())


def decode(content: bytes, name: str, first: int) -> list[str]:
    """The texts of consecutive lines of UTF-8, of which the first has the number `first`."""
    lines = content.split(b"\n")
    if not lines[-1]:  # what follows the last newline is no line
        lines.pop()
    try:
        text = b"\n".join(lines).decode("utf-8-sig" if first == 1 else "utf-8")
    except UnicodeDecodeError:  # which line?
        return [decode_line(line, name, number) for number, line in enumerate(lines, first)]
    return [line.rstrip("\r") for line in text.split("\n")] if lines else []


def decode_line(line: bytes, name: str, number: int) -> str:
    """The text of a line of UTF-8; a byte order mark and a carriage return are dropped."""
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{name}:{number}: found byte 0x{line[error.start]:02x}, which is not UTF-8; convert "
            "the file to UTF-8 first"
        ) from error
    return text.rstrip("\r\n")


def read_some(descriptor: int) -> bytes:
    """What has come through a pipe or from a terminal, once something has; empty at its end.

    Raises:
      Stopped: a signal asked for it.
    """
    while not select.select([descriptor], [], [], POLL_SECONDS)[0]:
        stopping.poll()
    return os.read(descriptor, SOME_BYTES)
