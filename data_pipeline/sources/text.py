"""Text as documents, sentences and words, and the abbreviations that it defines."""

from __future__ import annotations

import gzip
import hashlib
import logging
import re
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from data_pipeline.files.tables import bounded_lines, check_unpacked, unreadable
from data_pipeline.process import BadInput
from data_pipeline.sources.corpora import TEXT, identifiers_of, pubtator_mention
from data_pipeline.sources.obo import definitions

# -------------------------------------------------------------------------------------------------
# Documents read from files of text, with annotated names where the format has them.
#
# JSON lines, PubTator, definitions of an OBO ontology, and plain text; all but the ontology are
# read line by line, so that a file may be larger than memory.

_EXPECTED = (
    "JSON lines (.jsonl) with a field of text, PubTator, an OBO ontology (.obo) with definitions, "
    "or plain text (.txt) with a blank line between documents; each may be packed (.gz)"
)
_JSON_LINES = (".jsonl", ".ndjson", ".json")
_PLAIN = (".txt", ".text", "")


@dataclass(frozen=True)
class Annotation:
    """A name in a text: text[first:last], and the identifiers of the concepts meant."""

    first: int
    last: int
    concepts: tuple[str, ...]


@dataclass(frozen=True)
class Document:
    """A text, and what its source says of it.

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
    """Reads files of text and collects oddities in them.

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
        """The documents of a file, in order.

        Raises:
          BadInput: a file that cannot be read, is of no known form, or has no document.
        """
        before, odd = self.counts["documents"], len(self.odd)
        for document in self._read(path):
            self.counts["documents"] += 1
            yield document
        if self.counts["documents"] == before:
            first = f" ({self.odd[odd]})" if len(self.odd) > odd else ""
            raise BadInput(f"{path}: found no text{first}; expected {_EXPECTED}")

    def _read(self, path: Path) -> Iterator[Document]:
        kind = Path(path.name.removesuffix(".gz")).suffix.lower()
        if kind == ".obo":
            return self._definitions(path)
        lines = self._lines(path)
        if kind in _JSON_LINES:
            return self._json_lines(path, lines)
        first = next((line for line in lines if line[1].strip()), None)
        if first is not None and TEXT.match(first[1]):
            return self._pubtator(path, _again(first, lines))
        if kind in _PLAIN:
            return self._paragraphs(_again(first, lines) if first else lines)
        raise BadInput(f"{path}: found a file that ends in {kind}; expected {_EXPECTED}")

    def _note(self, place: str, what: str) -> None:
        self.counts[f"odd: {what}"] += 1
        self.odd.append(f"{place}: {what}")

    def _lines(self, path: Path) -> Iterator[tuple[int, str]]:
        """(number, line without its end) of each line that is valid UTF-8."""
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
        """A document for each definition: the defined name, annotated, then the definition."""
        if not path.is_file():
            raise BadInput(f"{path} does not exist; expected {_EXPECTED}")
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
        """A document for an abstract; its offsets count from the title, one blank, then the
        abstract.
        """
        text = f"{texts.get('t', '')} {texts.get('a', '')}"
        found = []
        for number, line in annotated:
            place = f"{path.name}:{number}"
            try:
                mention = pubtator_mention(line)
            except ValueError as error:
                self._note(place, str(error))
                continue
            if mention is None:
                continue
            self.counts[f"annotations: {mention.type}"] += 1
            if self.types and mention.type not in self.types:
                continue
            first, last = mention.first, mention.last
            if re.sub(r"\s", " ", text[first:last]) != re.sub(r"\s", " ", mention.text):
                self._note(place, "an annotation that is not at its place in the text")
                continue
            found.append(Annotation(first, last, tuple(identifiers_of(mention.identifiers))))
        return Document(text, tuple(found))


def _again(first: tuple[int, str], rest: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """A line that was read ahead, and then the following ones."""
    yield first
    yield from rest


# -------------------------------------------------------------------------------------------------
# The rule by which names and text are split into words; all code that looks words up uses it.
#
# BNE's authors use the English rules of spaCy 2.0, drop single marks and a few stop words, and
# lower-case (preprocessing of minhcp/BNE, of which the paper says nothing; Phan et al. 2019,
# section 4, has lower case and spaCy for text). The rules here are those that matter in names of
# medicine, as one regular expression that any other program can have, too:
#
# - A hyphen between two letters, or between two digits, divides ("non-small" is two words, "10-20"
#   too); between a letter and a digit it does not ("il-2", "5-ht" are one).
# - ".", "," and "/" between two digits do not divide ("2.5", "1,25"); elsewhere they do.
# - "'s" is a word of its own; another apostrophe between letters does not divide ("o'nyong").
# - Every other mark stands alone. It is no word, but names are matched with their marks.

STOP_WORDS = frozenset(("an", "the", "and", "of", "in", "on", "at", "other", "others", "nos"))
_HYPHENS = frozenset("-\u2010\u2011\u2012\u2013\u2014")
_POSSESSIVE = "'s"

_ALNUM = "[^\\W_\u0300-\u036f]"
_LETTER = "[^\\W\\d_]"
_WORD = "(?:[^\\W_]|[\u0300-\u036f])+"  # accents may stand as characters of their own
_HYPHEN = "[-\u2010\u2011\u2012\u2013]"
_JOINTS = (
    f"(?<=\\d){_HYPHEN}(?={_LETTER})",
    f"(?<={_LETTER}){_HYPHEN}(?=\\d)",
    "(?<=\\d)[.,/](?=\\d)",
    f"(?<={_LETTER})['\u2019](?!s(?!{_ALNUM}))(?={_LETTER})",
)
TOKEN = re.compile(
    f"(?P<possessive>(?<={_ALNUM})['\u2019]s(?!{_ALNUM}))"
    f"|{_WORD}(?:(?:{'|'.join(_JOINTS)}){_WORD})*|\\S"
)


def token_spans(text: str) -> list[tuple[str, int, int]]:
    """(token, first character, end) of each word and punctuation mark of a text.

    Tokens are in lower case and hold no blank and no "_" beside others. Hyphens that divide are
    none, so that "non-small cell" and "non small cell" are the same.
    """
    found = []
    for match in TOKEN.finditer(text):
        token = _POSSESSIVE if match["possessive"] else match[0].lower()
        if token not in _HYPHENS:
            found.append((token, match.start(), match.end()))
    return found


def _is_word(token: str) -> bool:
    """Whether a token is a word, i.e. neither punctuation nor a stop word."""
    return token not in STOP_WORDS and (token == _POSSESSIVE or token[0].isalnum())


def only_words(tokens: Iterable[str]) -> list[str]:
    """The tokens that are words, in order."""
    return [token for token in tokens if _is_word(token)]


def words_of(name: str) -> list[str]:
    """The words of a name; if it has none (such as "the"), its parts between blanks.

    Empty only for a name of blanks.
    """
    return only_words(token for token, _, _ in token_spans(name)) or name.lower().split()


def rules_hash() -> str:
    """SHA-256 of the rules; equal hashes mean that words were split by the same rules."""
    return hashlib.sha256("\n".join([TOKEN.pattern, *sorted(STOP_WORDS)]).encode()).hexdigest()


# -------------------------------------------------------------------------------------------------
# Sentence boundaries, at which a skip-gram's window ends.
#
# The rule is simple and fast: a sentence ends at ".",
# "!" or "?" before blanks and a capital, a digit or an opening mark, unless the dot ends an
# abbreviation or an initial; and at a blank line.

_END = re.compile(r"[.!?][\"')\]\u201d]*\s+(?=[\"'(\[\u201c]*[^\W_a-z])|\n\s*\n")
_LAST_WORD = re.compile(r"[^\s(\[]*$")
_ABBREVIATIONS = frozenset(
    "e.g i.e vs cf fig figs ref refs dr mr mrs ms prof st no nos approx ca al resp vol pp".split()
)


def sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """(first character, end) of each sentence, surrounding blanks included."""
    first = 0
    for match in _END.finditer(text):
        if match[0][0] == "." and _is_abbreviated(text, match.start()):
            continue
        if text[first : match.end()].strip():
            yield first, match.end()
            first = match.end()
    if text[first:].strip():
        yield first, len(text)


def _is_abbreviated(text: str, dot: int) -> bool:
    """Whether a dot ends an abbreviation, or an initial such as that of "E. coli"."""
    match = _LAST_WORD.search(text, max(0, dot - 12), dot)
    word = match[0] if match else ""
    return word.lower() in _ABBREVIATIONS or (len(word) == 1 and word.isupper())


# -------------------------------------------------------------------------------------------------
# Abbreviations that a text defines: "attention deficit disorder (ADD)".


def abbreviations_of(text: str) -> dict[str, str]:
    """The long form of each abbreviation of a text; for one that is defined twice, the last.

    By the letters of what stands before the brackets (Schwartz and Hearst 2003), as the library
    `abbreviations` has it. Phan et al. 2019 take Ab3P (Sohn et al. 2008), which finds somewhat more
    and is no Python package.

    Args:
      text: of one document, a paragraph a line.
    """
    # Imported late, as few commands need it. Its import would configure the logging of the process,
    # except where there is a handler. Its file has escapes that Python warns of when it compiles
    # them, i.e. at the first import after installation.
    root, nothing = logging.getLogger(), logging.NullHandler()
    root.addHandler(nothing)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from abbreviations import schwartz_hearst
    finally:
        root.removeHandler(nothing)
    found = schwartz_hearst.extract_abbreviation_definition_pairs(doc_text=text)
    return {str(short): str(words) for short, words in found.items()}
