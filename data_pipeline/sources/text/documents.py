"""Files of text in, documents out: with the names that are annotated in them, where any are.

JSON lines, PubTator, definitions of an OBO ontology, and plain text; all but the ontology are read
line by line, so that a file may be larger than memory.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from data_pipeline.files.bounds import bounded_lines, check_unpacked
from data_pipeline.files.rows import unreadable
from data_pipeline.process.errors import BadInput
from data_pipeline.sources.corpora.pubtator import TEXT, identifiers_of
from data_pipeline.sources.obo import definitions

EXPECTED = (
    "JSON lines (.jsonl) with a field of text, PubTator, an OBO ontology (.obo) with definitions, "
    "or plain text (.txt) with a blank line between documents; each may be packed (.gz)"
)
JSON_LINES = (".jsonl", ".ndjson", ".json")
PLAIN = (".txt", ".text", "")


@dataclass(frozen=True)
class Annotation:
    """A name in a text: text[first:last], and the identifiers of the concepts that it means."""

    first: int
    last: int
    concepts: tuple[str, ...]


@dataclass(frozen=True)
class Document:
    """A text and what its source tells of it.

    Attributes:
      text: in the case of the source.
      annotations: names in it.
      concepts: identifiers of what it is about, where the source tells.
      names: of these, as the source gives them; they may or may not stand in the text.
    """

    text: str
    annotations: tuple[Annotation, ...] = ()
    concepts: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


@dataclass
class TextReader:
    """Reads files of text, and keeps what was odd in them.

    Attributes:
      text_field: of JSON lines, the field with the text; "cuis" and "names" beside it may say what
        the text is about.
      types: of the annotations of PubTator that are taken; empty: all.
      advance: is told how many bytes of a file, packed as it is, were read.
      counts: documents, and odd things by what they are.
      odd: a line for each odd thing, with its place; it was left out.
    """

    text_field: str = "text"
    types: Container[str] = ()
    advance: Callable[[int], object] = lambda _: None
    counts: Counter[str] = field(default_factory=Counter)
    odd: list[str] = field(default_factory=list)

    def documents(self, path: Path) -> Iterator[Document]:
        """The documents of a file, in its order.

        Raises:
          BadInput: a file that cannot be read, is of no known form, or has no document.
        """
        before, odd = self.counts["documents"], len(self.odd)
        for document in self._read(path):
            self.counts["documents"] += 1
            yield document
        if self.counts["documents"] == before:
            first = f" ({self.odd[odd]})" if len(self.odd) > odd else ""
            raise BadInput(f"{path}: found no text{first}; expected {EXPECTED}")

    def _read(self, path: Path) -> Iterator[Document]:
        kind = Path(path.name.removesuffix(".gz")).suffix.lower()
        if kind == ".obo":
            return self._definitions(path)
        lines = self._lines(path)
        if kind in JSON_LINES:
            return self._json_lines(path, lines)
        first = next((line for line in lines if line[1].strip()), None)
        if first is not None and TEXT.match(first[1]):
            return self._pubtator(path, _again(first, lines))
        if kind in PLAIN:
            return self._paragraphs(_again(first, lines) if first else lines)
        raise BadInput(f"{path}: found a file that ends in {kind}; expected {EXPECTED}")

    def _note(self, place: str, what: str) -> None:
        self.counts[f"odd: {what}"] += 1
        self.odd.append(f"{place}: {what}")

    def _lines(self, path: Path) -> Iterator[tuple[int, str]]:
        """(number, line without its end) of each line that is UTF-8."""
        try:
            with path.open("rb") as packed:
                zipped = path.suffix.lower() == ".gz"
                file = cast(BinaryIO, gzip.GzipFile(fileobj=packed)) if zipped else packed
                told = size = 0
                for number, line in enumerate(bounded_lines(file, str(path)), start=1):
                    size += len(line)
                    if (here := packed.tell()) != told:
                        check_unpacked(str(path), here, size)
                        self.advance(here - told)
                        told = here
                    try:
                        yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip()
                    except UnicodeDecodeError:
                        self._note(f"{path.name}:{number}", "a line that is not UTF-8")
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise BadInput(f"{path} is damaged or cut off ({error}); fetch it again") from error
        except OSError as error:
            raise unreadable(path, error) from error

    def _json_lines(self, path: Path, lines: Iterator[tuple[int, str]]) -> Iterator[Document]:
        for number, line in lines:
            if not line.strip():
                continue
            place = f"{path.name}:{number}"
            try:
                found = msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError):
                self._note(place, "a line that is no JSON")
                continue
            text = found.get(self.text_field) if isinstance(found, dict) else None
            if not isinstance(text, str) or not text.strip():
                self._note(place, f"no text in the field {self.text_field!r}")
                continue
            about = {key: found.get(key) or [] for key in ("cuis", "names")}
            if not all(
                isinstance(some, list) and all(isinstance(one, str) for one in some)
                for some in about.values()
            ):
                self._note(place, "cuis or names that are no list of strings")
                about = {"cuis": [], "names": []}
            yield Document(text, (), tuple(about["cuis"]), tuple(about["names"]))

    def _definitions(self, path: Path) -> Iterator[Document]:
        """Each definition behind the name that it defines, which is annotated."""
        if not path.is_file():
            raise BadInput(f"{path} does not exist; expected {EXPECTED}")
        for identifier, name, definition in definitions(path):
            yield Document(f"{name}: {definition}", (Annotation(0, len(name), (identifier,)),))
        self.advance(path.stat().st_size)

    def _paragraphs(self, lines: Iterator[tuple[int, str]]) -> Iterator[Document]:
        gathered: list[str] = []
        for _, line in lines:
            if line.strip():
                gathered.append(line)
            elif gathered:
                yield Document("\n".join(gathered))
                gathered = []
        if gathered:
            yield Document("\n".join(gathered))

    def _pubtator(self, path: Path, lines: Iterator[tuple[int, str]]) -> Iterator[Document]:
        texts: dict[str, str] = {}
        annotated: list[tuple[int, str]] = []
        identifier = None
        for number, line in lines:
            if match := TEXT.match(line):
                if line.partition("|")[0] != identifier:
                    if texts:
                        yield self._abstract(path, texts, annotated)
                    texts, annotated, identifier = {}, [], line.partition("|")[0]
                texts[match[0][-2]] = line[match.end() :]
            elif line.strip():
                annotated.append((number, line))
        if texts:
            yield self._abstract(path, texts, annotated)

    def _abstract(
        self, path: Path, texts: dict[str, str], annotated: list[tuple[int, str]]
    ) -> Document:
        """An abstract; places of its annotations count from its title, a blank, the rest."""
        text = f"{texts.get('t', '')} {texts.get('a', '')}"
        found = []
        for number, line in annotated:
            fields, place = line.split("\t"), f"{path.name}:{number}"
            if len(fields) == 4 and not fields[1].isdigit():
                continue  # a relation between two identifiers, such as CID
            if len(fields) < 5 or not (fields[1].isdecimal() and fields[2].isdecimal()):
                self._note(place, "no line of PubTator")
                continue
            self.counts[f"annotations: {fields[4]}"] += 1
            if self.types and fields[4] not in self.types:
                continue
            first, last = int(fields[1]), int(fields[2])
            if re.sub(r"\s", " ", text[first:last]) != re.sub(r"\s", " ", fields[3]):
                self._note(place, "an annotation that is not at its place in the text")
                continue
            concepts = identifiers_of(fields[5]) if len(fields) > 5 else []
            found.append(Annotation(first, last, tuple(concepts)))
        return Document(text, tuple(found))


def _again(first: tuple[int, str], rest: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """A line that was looked at, and those behind it."""
    yield first
    yield from rest
