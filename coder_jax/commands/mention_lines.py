"""Mentions from a text file or from stdin, one per line, as they come."""

from __future__ import annotations

import io
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from coder_jax.encoding.term_lines import decode_line, read_some
from data_pipeline.files.bounds import LONGEST_LINE, bounded_lines, too_long
from data_pipeline.process.errors import BadInput

MENTIONS_AT_A_TIME = 4096  # the dictionary is gone through once for so many


@contextmanager
def open_mentions(path: str) -> Iterator[tuple[BinaryIO, str]]:
    """(binary stream, its name for messages) of a file, or of stdin where `path` is '-'."""
    if path == "-":
        yield sys.stdin.buffer, "stdin"
        return
    try:
        stream = Path(path).open("rb")
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); give a text file") from error
    with stream:
        yield stream, path


def read_mentions(stream: BinaryIO, name: str) -> Iterator[list[str]]:
    """Mentions some at a time; where the input pauses, those that have come are answered."""
    mentions: list[str] = []
    number = 0
    for line in read_lines(stream, name):
        if line is not None:
            number += 1
            mention = decode_line(line, name, number)
            if "\t" in mention:
                raise BadInput(
                    f"{name}:{number}: found a tab; expected one mention per line and nothing else "
                    "(cut -f1 keeps the first column)"
                )
            mentions.append(mention)
        if mentions and (line is None or len(mentions) == MENTIONS_AT_A_TIME):
            yield mentions
            mentions = []
    if mentions:
        yield mentions


def read_lines(stream: BinaryIO, name: str) -> Iterator[bytes | None]:
    """The lines of a stream, and None whenever the next one must be waited for.

    Raises:
        BadInput: a line is longer than any mention; `name` names the stream.
    """
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:  # a stream in memory
        yield from bounded_lines(stream, name)
        return
    rest, number = b"", 1
    while True:
        if not select.select([descriptor], [], [], 0)[0]:
            yield None
        content = read_some(descriptor)
        if not content:
            break
        *lines, rest = (rest + content).split(b"\n")
        yield from lines
        number += len(lines)
        if len(rest) > LONGEST_LINE:
            raise too_long(name, number)
    if rest:
        yield rest
