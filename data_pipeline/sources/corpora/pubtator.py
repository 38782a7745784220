"""PubTator: annotated abstracts with a line of tab-separated fields for each mention.

The lines PMID|t|title and PMID|a|abstract are followed by PMID, first character, last character,
mention, type, identifiers. Identifiers that "|" joins are those of a composite mention ("ocular and
auditory toxicity"), those that "+" joins are needed together; here both are sets, all of which the
mention means. "-1" stands where an annotator found no identifier.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from data_pipeline.files.bounds import bounded_lines
from data_pipeline.files.rows import read_text, unreadable
from data_pipeline.process.errors import BadInput

TEXT = re.compile(r"\d+\|[ta]\|")
JOINED = re.compile(r"[|+]")
# MEDIC, which NCBI disease and BC5CDR are annotated with, has identifiers of two vocabularies.
PREFIX = re.compile(r"(?:MESH|OMIM):", re.IGNORECASE)
NONE = "-1"
LINES_LOOKED_AT = 20


class PubTatorMention(NamedTuple):
    """A mention as its line has it.

    Attributes:
      place: such as "test.txt:12", for messages.
      text, type, identifiers: the fields.
      parts: of a composite mention, in words, where the file tells: "ocular toxicity", ...
    """

    place: str
    text: str
    type: str
    identifiers: str
    parts: tuple[str, ...]


class Abstract(NamedTuple):
    """Title and abstract, a line each, and the mentions in them."""

    text: str
    mentions: list[PubTatorMention]


def is_pubtator(path: Path) -> bool:
    """Whether one of the first lines of a file is the title of an abstract."""
    try:
        with path.open("rb") as file:
            for _, line in zip(
                range(LINES_LOOKED_AT), bounded_lines(file, str(path)), strict=False
            ):
                if line.strip():
                    return TEXT.match(line.decode("utf-8-sig", errors="replace")) is not None
    except OSError as error:
        raise unreadable(path, error) from error
    return False


def read_pubtator(
    path: Path, types: Sequence[str] = ()
) -> Iterator[tuple[str, str, Sequence[str], str]]:
    """(place, mention, identifiers, what is wrong or "") of each mention of a file.

    Args:
      path: the file.
      types: of mentions to take; none: all.

    Raises:
      BadInput: if the file cannot be read, or has no mention of any of the types.
    """
    found: set[str] = set()
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        line = line.strip()
        if not line or TEXT.match(line):
            continue
        fields, place = line.split("\t"), f"{path.name}:{number}"
        if len(fields) == 4 and not fields[1].isdigit():
            continue  # a relation between two identifiers, such as CID
        if len(fields) < 5 or not (fields[1].isdigit() and fields[2].isdigit()):
            yield place, "", (), "no line of PubTator"
            continue
        found.add(fields[4])
        if types and fields[4] not in types:
            continue
        identifiers = identifiers_of(fields[5] if len(fields) > 5 else NONE)
        yield place, fields[3], identifiers, ""
    if types and not found.intersection(types):
        raise BadInput(
            f"{path}: found no mention of the type {' or '.join(types)}; expected one of "
            f"{', '.join(sorted(found)) or 'none'}"
        )


def types_of(path: Path) -> set[str]:
    """The types of the mentions of a file."""
    fields = (line.split("\t") for line in read_text(path).split("\n") if not TEXT.match(line))
    return {row[4].strip() for row in fields if len(row) >= 5}


def read_abstracts(path: Path) -> list[Abstract]:
    """The abstracts of a file, in its order, with all their mentions.

    BadInput if the file cannot be read, or has a line that is none of PubTator's.
    """
    texts: dict[str, list[str]] = {}
    mentions: dict[str, list[PubTatorMention]] = {}
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        line = line.rstrip("\r")
        if not line.strip():
            continue
        if match := TEXT.match(line):
            texts.setdefault(line.partition("|")[0], []).append(line[match.end() :])
            continue
        fields, place = line.split("\t"), f"{path.name}:{number}"
        if len(fields) == 4 and not fields[1].isdigit():
            continue  # a relation between two identifiers, such as CID
        if len(fields) < 5 or not (fields[1].isdigit() and fields[2].isdigit() and fields[3]):
            raise BadInput(
                f"{path}:{number}: found {line[:80]!r}; expected a line of PubTator: PMID, first "
                "character, last character, mention, type, identifiers: mend the line, or fetch "
                "the file again"
            )
        if fields[0] not in texts:
            raise BadInput(
                f"{path}:{number}: found a mention in {fields[0]!r}, of which no line above has "
                f"the text; expected {fields[0]}|t|title before it: fetch the file again"
            )
        identifiers, parts = (*fields[5:], "", "")[:2]
        found = PubTatorMention(
            place, fields[3], fields[4], identifiers.strip(), tuple(filter(None, parts.split("|")))
        )
        mentions.setdefault(fields[0], []).append(found)
    return [Abstract("\n".join(text), mentions.get(one, [])) for one, text in texts.items()]


def identifiers_of(field: str) -> list[str]:
    """The identifiers of a field, without the names of their vocabularies."""
    parts = (PREFIX.sub("", part.strip()) for part in JOINED.split(field))
    return [part for part in parts if part and part != NONE]
