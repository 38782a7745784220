"""Terms to encode in, numbered chunks of them out, with their number and hash.

A file of one term per line is read through once, to count, hash and check its lines, and then chunk
by chunk: however many terms there are, one chunk is in memory.
"""

from __future__ import annotations

import hashlib
import os
import select
from collections.abc import Sequence
from itertools import islice
from typing import BinaryIO

from data_pipeline.files.bounds import bounded_lines
from data_pipeline.process import stopping
from data_pipeline.process.errors import BadInput

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
