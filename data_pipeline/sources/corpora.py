"""Readers of annotated corpora and lists of mentions: brat, PubTator, QUAERO, CHIP."""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from data_pipeline.files.identity import read_json_value, typed
from data_pipeline.files.tables import (
    CONCEPT_SEPARATOR,
    ZIP_ERRORS,
    Rows,
    bounded_lines,
    check_unpacked,
    decoded,
    first_line,
    is_empty,
    is_workbook,
    read_rows,
    read_text,
    tab_separated,
    tidy_concepts,
    two_columns,
    unreadable,
    zip_members,
)
from data_pipeline.process import BadInput, did_you_mean

# -------------------------------------------------------------------------------------------------
# Corpora in brat's stand-off format: text files, with .ann files of mentions and notes beside them.
#
# A line `T1<TAB>DISO 15 36<TAB>mention` is a mention: its type, where it stands (characters of the
# text, the end exclusive; of a mention with gaps several places, ";" between them), and its words.
# A line `#1<TAB>AnnotatorNotes T1<TAB>note` is a note on it. Lines of other kinds (relations,
# events, attributes, other notes) are left aside. A corpus is a folder, a .zip or a .tar.gz.

_MENTION = re.compile(r"(T\d+)\t(\S+) (\d+ \d+(?:;\d+ \d+)*)\t(.*)", re.DOTALL)
_NOTE = re.compile(r"#\d+\tAnnotatorNotes (T\d+)\t(.*)", re.DOTALL)
_OTHER_NOTE = re.compile(r"#\d+\tAnnotatorNotes (?!T\d)[A-Z*#]\S*\t")  # on a relation and the like
_OTHER_LINES = ("R", "E", "A", "M", "N", "*", "#")  # what else BRAT writes
_TAR_ENDINGS = (".tar.gz", ".tgz", ".tar")

Span = tuple[int, int]


@dataclass(frozen=True)
class BratMention:
    """A mention of an .ann file.

    Attributes:
      name: "T1", by which notes name it.
      type: such as "DISO".
      spans: (start, end) of each of its pieces, in characters, in the order written.
      text: its words as the file has them, a blank between pieces.
      line: of the file, from 1 on.
      note: None where it has none; otherwise as it is written, blanks included.
    """

    name: str
    type: str
    spans: tuple[Span, ...]
    text: str
    line: int
    note: str | None = None


def read_mentions(
    ann: str,
    text: str,
    place: str,
    *,
    check_type: Callable[[str, str], None],
    example: str,
) -> list[BratMention]:
    """The mentions of an .ann file, in order, each with its note.

    Args:
      ann, text: what the .ann and the .txt file hold.
      place: the .ann file, for messages.
      check_type: raises BadInput for a type that is not known; its second argument is the place.
      example: what a mention looks like, for messages: "T1<TAB>DISO 15 36<TAB>mention".

    Raises:
      BadInput: a line that is none of BRAT's, a mention that is not where the text has it, a name
        that is there twice, or a note on no mention or on one that has a note.
    """
    found: dict[str, BratMention] = {}
    notes: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(ann.split("\n"), start=1):
        where, line = f"{place}:{number}", line.removesuffix("\r")
        if match := _MENTION.fullmatch(line):
            name, kind, written, words = match.groups()
            check_type(kind, where)
            pieces = [piece.split() for piece in written.split(";")]
            spans = tuple((int(start), int(end)) for start, end in pieces)
            check_spans(where, text, spans, words)
            if name in found:
                raise BadInput(
                    f"{where}: found {name} again, which line {found[name].line} has; expected "
                    "each name once: mend the line, or fetch the corpus again"
                )
            found[name] = BratMention(name, kind, spans, words, number)
        elif match := _NOTE.fullmatch(line):
            name, note = match.groups()
            if name in notes:
                raise BadInput(
                    f"{where}: found a second note on {name}, after that of line {notes[name][0]}; "
                    "expected one for each mention: take one of the two out"
                )
            notes[name] = number, note
        elif _OTHER_NOTE.match(line):
            continue
        elif line.strip() and (line[0] not in _OTHER_LINES or "AnnotatorNotes" in line):
            note = "#1<TAB>AnnotatorNotes T1<TAB>note"
            raise BadInput(
                f"{where}: found {line[:80]!r}; expected {note if line[0] == '#' else example}: "
                "mend the line, or fetch the corpus again"
            )
    for name, (number, _) in notes.items():
        if name not in found:
            raise BadInput(
                f"{place}:{number}: found a note on {name}, and no such mention in the file; "
                "expected one: mend the line, or fetch the corpus again"
            )
    noted = {name: note for name, (_, note) in notes.items()}
    return [replace(one, note=noted.get(one.name)) for one in found.values()]


def check_spans(place: str, text: str, spans: tuple[Span, ...] | list[Span], words: str) -> None:
    """Raise BadInput where the text does not have a mention's words at its place."""
    there = " ".join(text[start:end] for start, end in spans)
    is_whole = all(start < end <= len(text) for start, end in spans)
    if there.split() != words.split() or not is_whole:
        raise BadInput(
            f"{place}: found the mention {words!r} where the text has {there!r} (of its {len(text)}"
            " characters); expected the same: text and mentions do not belong together, or were "
            "converted; fetch them again"
        )


def _documents(path: Path) -> Iterator[tuple[PurePosixPath, str, str]]:
    """(name of the .ann file, its content, the content of its .txt file) of each document, sorted.

    BadInput for an .ann file without text, or a file that is not UTF-8.
    """
    held = contents(path, lambda name: name.suffix in (".ann", ".txt"))
    for name in sorted(held):
        if name.suffix == ".ann":
            ann, text = document(held, name, path)
            yield name, ann, text


def document(held: Mapping[PurePosixPath, bytes], name: PurePosixPath, path: Path) -> list[str]:
    """The content of an .ann file and of its text file; BadInput if that is missing or not
    UTF-8.
    """
    beside = name.with_suffix(".txt")
    if beside not in held:
        raise BadInput(f"{path}/{name}: found no {beside.name} beside it; fetch it again")
    return [decoded(held[one], f"{path}/{one}") for one in (name, beside)]


def contents(path: Path, is_wanted: Callable[[PurePosixPath], bool]) -> dict[PurePosixPath, bytes]:
    """The wanted files of a folder, a .zip or a .tar.gz, by their names inside it.

    Files that macOS adds to others are never among them.

    Raises:
      BadInput: it cannot be read, or is damaged, or unpacks to far more than any text does.
    """

    def wanted(name: PurePosixPath) -> bool:
        of_macos = "__MACOSX" in name.parts or name.name.startswith("._")
        return not of_macos and is_wanted(name)

    if path.is_dir():
        files = (one for one in path.rglob("*") if one.is_file())
        inside = {PurePosixPath(one.relative_to(path).as_posix()): one for one in files}
        return {name: one.read_bytes() for name, one in inside.items() if wanted(name)}
    try:
        return dict(_packed_in_tar(path, wanted) if _is_tar(path) else _packed_in_zip(path, wanted))
    except FileNotFoundError as error:
        raise unreadable(path, error) from error
    except (*ZIP_ERRORS, tarfile.TarError) as error:
        kind = "a .tar.gz" if _is_tar(path) else "a .zip"
        raise BadInput(
            f"{path}: cannot be read as {kind} file ({error}); fetch it again"
        ) from error


def _is_tar(path: Path) -> bool:
    return path.name.lower().endswith(_TAR_ENDINGS)


def _names_in(path: Path) -> list[PurePosixPath]:
    """The names of all files in a folder or an archive; none if it cannot be read."""
    try:
        if path.is_dir():
            return [PurePosixPath(one.relative_to(path).as_posix()) for one in path.rglob("*")]
        if _is_tar(path):
            with tarfile.open(path) as packed:
                return [PurePosixPath(name) for name in packed.getnames()]
        with zipfile.ZipFile(path) as archive:
            return [PurePosixPath(name) for name in archive.namelist()]
    except (*ZIP_ERRORS, tarfile.TarError):
        return []


def _packed_in_zip(
    path: Path, wanted: Callable[[PurePosixPath], bool]
) -> Iterator[tuple[PurePosixPath, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for info in zip_members(archive, str(path), lambda name: wanted(PurePosixPath(name))):
            yield PurePosixPath(info.filename), archive.read(info)


def _packed_in_tar(
    path: Path, wanted: Callable[[PurePosixPath], bool]
) -> Iterator[tuple[PurePosixPath, bytes]]:
    packed, unpacked = path.stat().st_size, 0
    with tarfile.open(path) as archive:
        for info in archive:
            name = PurePosixPath(info.name)
            file = archive.extractfile(info) if info.isfile() and wanted(name) else None
            if file is not None:
                unpacked += info.size
                check_unpacked(str(path), packed, unpacked)
                yield name, file.read()


# -------------------------------------------------------------------------------------------------
# PubTator: annotated abstracts, with a line of tab-separated fields for each mention.
#
# The lines PMID|t|title and PMID|a|abstract are followed by PMID, first character, last character,
# mention, type, identifiers. Identifiers that "|" joins are those of a composite mention ("ocular
# and auditory toxicity"), those that "+" joins are needed together; here both are sets, all of
# which the mention means. "-1" stands where an annotator found no identifier.

TEXT = re.compile(r"\d+\|[ta]\|")
_JOINED = re.compile(r"[|+]")
# MEDIC, the dictionary of NCBI disease and BC5CDR, has identifiers of two vocabularies.
PREFIX = re.compile(r"(?:MESH|OMIM):", re.IGNORECASE)
MESH_AND_OMIM = frozenset(("MSH", "MESH", "OMIM"))  # as UMLS and CTD call the vocabularies
NONE = "-1"
_LINES_LOOKED_AT = 20


class PubTatorMention(NamedTuple):
    """A mention as written in its line.

    Attributes:
      pmid: of its abstract.
      first, last: its first character and the one after its last, counted from the title's first.
      text, type, identifiers: the fields.
      parts: of a composite mention, in words, where the file tells: "ocular toxicity", ...
    """

    pmid: str
    first: int
    last: int
    text: str
    type: str
    identifiers: str
    parts: tuple[str, ...]


class Abstract(NamedTuple):
    """The title and the abstract of an article, one line each, and the mentions in them."""

    text: str
    mentions: list[PubTatorMention]
    pmid: str


def is_pubtator(path: Path) -> bool:
    """Whether one of the first lines of a file is the title of an abstract."""
    if is_workbook(path):
        return False
    try:
        with path.open("rb") as file:
            for _, line in zip(
                range(_LINES_LOOKED_AT), bounded_lines(file, str(path)), strict=False
            ):
                if line.strip():
                    return TEXT.match(line.decode("utf-8-sig", errors="replace")) is not None
    except OSError as error:
        raise unreadable(path, error) from error
    return False


def pubtator_mention(line: str) -> PubTatorMention | None:
    """The mention of a line; None for a relation between two identifiers, such as CID.

    ValueError for a line that is none of PubTator's.
    """
    fields = line.rstrip("\r\n").split("\t")
    if len(fields) == 4 and not fields[1].isdecimal():
        return None
    if len(fields) < 5 or not (fields[1].isdecimal() and fields[2].isdecimal() and fields[3]):
        raise ValueError("no line of PubTator")
    pmid, first, last, text, kind, identifiers, parts = (*fields, "", "")[:7]
    composite = tuple(filter(None, parts.split("|")))
    return PubTatorMention(
        pmid, int(first), int(last), text, kind.strip(), identifiers.strip(), composite
    )


def _read_pubtator(
    path: Path, types: Sequence[str] = ()
) -> Iterator[tuple[str, str, Sequence[str], str]]:
    """(place, mention, identifiers, problem or "") of each mention of a file.

    Args:
      path: the file.
      types: of mentions to take; none: all.

    Raises:
      BadInput: if the file cannot be read, or has no mention of any of the types.
    """
    found: set[str] = set()
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip() or TEXT.match(line):
            continue
        place = f"{path.name}:{number}"
        try:
            mention = pubtator_mention(line)
        except ValueError as error:
            yield place, "", (), str(error)
            continue
        if mention is not None:
            found.add(mention.type)
            if not types or mention.type in types:
                yield place, mention.text, identifiers_of(mention.identifiers), ""
    if types and not found.intersection(types):
        raise BadInput(
            f"{path}: found no mention of the type {' or '.join(types)}; expected one of "
            f"{', '.join(sorted(found)) or 'none'}"
        )


def types_of(path: Path) -> set[str]:
    """The mention types that occur in a file."""
    fields = (line.split("\t") for line in read_text(path).split("\n") if not TEXT.match(line))
    return {row[4].strip() for row in fields if len(row) >= 5}


def read_abstracts(path: Path) -> list[Abstract]:
    """The abstracts of a file, in order, with all their mentions.

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
        try:
            mention = pubtator_mention(line)
        except ValueError as error:
            raise BadInput(
                f"{path}:{number}: found {line[:80]!r}; expected a line of PubTator: PMID, first "
                "character, last character, mention, type, identifiers: mend the line, or fetch "
                "the file again"
            ) from error
        if mention is None:
            continue
        if mention.pmid not in texts:
            raise BadInput(
                f"{path}:{number}: found a mention in {mention.pmid!r}, of which no line above has "
                f"the text; expected {mention.pmid}|t|title before it: fetch the file again"
            )
        mentions.setdefault(mention.pmid, []).append(mention)
    return [Abstract("\n".join(text), mentions.get(one, []), one) for one, text in texts.items()]


def identifiers_of(field: str) -> list[str]:
    """The identifiers in a field, without vocabulary prefixes."""
    parts = (PREFIX.sub("", part.strip()) for part in _JOINED.split(field))
    return [part for part in parts if part and part != NONE]


# -------------------------------------------------------------------------------------------------
# Mentions with a set of gold names or identifiers, read from any of several formats.
#
# Read are CHIP-2019 (Yidu-N7K) as it is distributed, tab-separated or .xlsx; CHIP-CDN (.json);
# PubTator (NCBI disease, BC5CDR); and plain tables of mention and gold. All gold of a mention is
# meant, not one or the other of it: `##` joins several, and in a plain table `|` does where a whole
# is no gold.

_NAME_SEPARATOR = "##"
_MENTION_COLUMNS = {"mention", "term", "text", "string", "原始词"}
_GOLD_COLUMNS = {"name", "names", "gold", "标准词", "cui", "cuis", "concept", "concepts", "code"}
_GOLD_COLUMNS |= {"codes", "concept_id", "id", "ids", "normalized_result"}
_CSV_FIELD = re.compile(r'"((?:[^"]|"")*)"')  # CHIP-CDN has some whose quotes were left


class GoldMention(NamedTuple):
    """A mention, its gold as written in the file, and the place of its row, such as
    "train.tsv:12".
    """

    mention: str
    gold: tuple[str, ...]
    place: str


@dataclass(frozen=True)
class GoldMentions:
    """The mentions of a file, in order.

    Attributes:
      rows: what was read; a mention has one gold at least, each once.
      counts: what was seen on the way, by what it is.
      odd: a line for each thing that was left out or mended, with its place.
    """

    rows: list[GoldMention]
    counts: Counter[str]
    odd: list[str]


def read_gold(path: Path, types: Sequence[str] = ()) -> GoldMentions:
    """The mentions of a file, whose format is recognized by its content.

    Args:
      path: .json as CHIP-CDN has it; PubTator; or a table of two columns, mention and gold, as
        text or .xlsx, with a header or without.
      types: of PubTator, the types of mentions to take, such as ["Disease"]; none: all.

    Raises:
      BadInput: if it cannot be read, or has no mention with gold.
    """
    if path.suffix.lower() == ".json":
        found = _Reading(_json_rows(path))
    elif is_pubtator(path):
        found = _Reading(_read_pubtator(path, types))
    else:
        found = _Reading(_table_rows(path))
    if not found.rows:
        raise BadInput(
            f"{path}: found no mention with gold; expected rows of mention<TAB>gold, JSON of CHIP-"
            f"CDN, or PubTator{f' with mentions of the type {types[0]}' if types else ''}"
        )
    return GoldMentions(found.rows, found.counts, found.odd)


class _Reading:
    """Sorts rows of (place, mention, gold strings, problem) into mentions and oddities."""

    def __init__(self, rows: Iterator[tuple[str, str, Sequence[str], str]]):
        self.rows: list[GoldMention] = []
        self.counts: Counter[str] = Counter()
        self.odd: list[str] = []
        for place, mention, gold, wrong in rows:
            self._take(place, mention, gold, wrong)

    def _take(self, place: str, mention: str, gold: Sequence[str], wrong: str) -> None:
        kept = [one for one in map(str.strip, gold) if one]
        distinct = tuple(dict.fromkeys(kept))
        if not wrong and not mention.strip():
            wrong = "no mention"
        if not wrong and not kept:
            wrong = "no gold"
        if wrong:
            self._note(f"rows left out: {wrong}", f"{place}: left out: {wrong}")
            return
        if len(distinct) < len(kept):
            self._note("repeated gold, counted once", f"{place}: repeated gold: {kept}")
        self.rows.append(GoldMention(mention.strip(), distinct, place))

    def _note(self, count: str, line: str) -> None:
        self.counts[count] += 1
        self.odd.append(line)


def _json_rows(path: Path) -> Iterator[tuple[str, str, Sequence[str], str]]:
    """Rows of CHIP-CDN: a list of {text, normalized_result}; the test set's gold is empty."""
    rows = typed(read_json_value(path), list[dict[str, str]], str(path))
    for number, row in enumerate(rows, start=1):
        mention, joined = (
            _unquoted(row.get("text", "")),
            _unquoted(row.get("normalized_result", "")),
        )
        gold = [_unquoted(one) for one in joined.split(_NAME_SEPARATOR)]
        yield f"{path.name}: entry {number}", mention, gold, ""


def _unquoted(field: str) -> str:
    """A string without the quotes of a CSV field."""
    match = _CSV_FIELD.fullmatch(field.strip())
    return match[1].replace('""', '"') if match else field


def _table_rows(path: Path) -> Iterator[tuple[str, str, Sequence[str], str]]:
    """The rows of a two-column table, without its header."""
    filled = [(number, fields) for number, fields in rows_of(path) if not is_empty(fields)]
    if filled and _is_header(filled[0][1]):
        del filled[0]
    for number, fields in filled:
        place = f"{path.name}:{number}"
        if len(fields) != 2:
            yield place, "", (), f"{len(fields)} columns in place of 2"
        else:
            yield place, fields[0], fields[1].split(_NAME_SEPARATOR), ""


def rows_of(path: Path) -> Rows:
    """The rows of a table as they are.

    In text that tabs divide, quotes are ordinary characters. Where its first line has none, it is
    read as `read_rows` does, with the separator and the quotes of a CSV file.
    """
    if is_workbook(path):
        return read_rows(path)[1]
    lines = [line.rstrip("\r").split("\t") for line in read_text(path).split("\n")]
    rows = list(enumerate(lines, start=1))
    first = next((fields for fields in lines if not is_empty(fields)), [])
    return rows if len(first) != 1 else read_rows(path)[1]


def _is_header(fields: Sequence[str]) -> bool:
    """Whether a first row is a header that names the columns of mentions and gold."""
    lower = [field.strip().lower() for field in fields]
    return len(lower) == 2 and lower[0] in _MENTION_COLUMNS and lower[1] in _GOLD_COLUMNS


def split_unknown(gold: str, known: Container[str]) -> list[str]:
    """The gold string if it is known, else its parts between "|"."""
    if gold in known or CONCEPT_SEPARATOR not in gold:
        return [gold]
    return [part for part in map(str.strip, gold.split(CONCEPT_SEPARATOR)) if part]


# -------------------------------------------------------------------------------------------------
# The QUAERO French Medical Corpus: mentions in French, their semantic group and UMLS CUIs.
#
# Névéol et al. 2014, in the form of CLEF eHealth 2015 and 2016: `corpus/SET/PART/NAME.ann` with the
# text beside it, SET one of train, dev (the test set of 2015) and test (that of 2016), PART one of
# EMEA (drug leaflets, tokenized) and MEDLINE (titles). It is read as it was annotated, as every
# correction moves a score: CUIs that were mistyped stay, and so do mentions without one.

GROUPS = ("ANAT", "CHEM", "DEVI", "DISO", "GEOG", "LIVB", "OBJC", "PHEN", "PHYS", "PROC")
SETS, PARTS = ("train", "dev", "test"), ("EMEA", "MEDLINE")
_EXAMPLE = "T1<TAB>DISO 15 36<TAB>mention"
_EXPECTED = (
    "the folder QUAERO_FrenchMed or its corpus (or a .tar.gz or .zip of it), with files such as "
    "train/EMEA/318.ann, in one or more of the folders train, dev, test"
)


@dataclass(frozen=True)
class QuaeroMention:
    """A mention as annotated in the corpus.

    Attributes:
      document: "train/EMEA/318".
      group: of GROUPS.
      spans: (start, end) of each of its pieces, in characters of the document, in the order
        written, which may not be that of the text. Mentions lie in others, and two may have the
        same place.
      text: the words of its pieces, a blank between two.
      note: what the annotators wrote of it, blanks included; None where they wrote none.
      cuis: the note, divided at each blank but those at its end. What is no CUI is kept as it is:
        a mistyped one, two with a comma between them, nothing before a blank, an empty note.
    """

    document: str
    group: str
    spans: tuple[Span, ...]
    text: str
    note: str | None

    @property
    def cuis(self) -> tuple[str, ...]:
        return () if self.note is None else tuple(self.note.rstrip(" \t").split(" "))


def is_quaero(path: Path) -> bool:
    """Whether a path is the corpus, as a folder or an archive."""
    if path.is_dir():
        roots = (path, path / "corpus")
        sets = [root / one / part for root in roots for one in SETS for part in PARTS]
        return any(folder.is_dir() and any(folder.glob("*.ann")) for folder in sets)
    ends = (*_TAR_ENDINGS, ".zip")
    return path.name.lower().endswith(ends) and any(map(_set_of, _names_in(path)))


def _set_of(name: PurePosixPath) -> tuple[str, str] | None:
    """The set and part of a file of the corpus, such as ("train", "EMEA"); None for other files."""
    *_, named, part, _ = ("", "", *name.parts) if name.suffix == ".ann" else ("", "", "")
    return (named, part) if named in SETS and part in PARTS else None


def read_quaero(path: Path) -> dict[tuple[str, str], list[QuaeroMention]]:
    """The mentions of all sets found: {("train", "EMEA"): [...], ...}, in a fixed order.

    Args:
      path: the folder QUAERO_FrenchMed or its corpus, or a .tar.gz or .zip of it.

    Raises:
      BadInput: no such files, a set that is there twice, or a broken one: file, line, what was
        found and what to do.
    """
    found: dict[tuple[str, str], list[QuaeroMention]] = {}
    folder_of: dict[tuple[str, str], PurePosixPath] = {}
    for name, ann, text in _documents(path):
        chosen = _set_of(name)
        if chosen is None:
            raise BadInput(f"{path}: found {name}; expected {_EXPECTED}")
        if folder_of.setdefault(chosen, name.parent) != name.parent:
            raise BadInput(
                f"{path}: found {'/'.join(chosen)} both in {folder_of[chosen]} and in "
                f"{name.parent}; expected one corpus: give the folder of one"
            )
        read = read_mentions(ann, text, f"{path}/{name}", check_type=_check_group, example=_EXAMPLE)
        document = "/".join((*chosen, name.stem))
        found.setdefault(chosen, []).extend(
            QuaeroMention(document, one.type, one.spans, one.text, one.note) for one in read
        )
    if not any(found.values()):
        raise BadInput(f"{path}: found no mentions of the QUAERO corpus; expected {_EXPECTED}")
    order = [(one, part) for one in SETS for part in PARTS]
    return {chosen: found[chosen] for chosen in order if chosen in found}


def _check_group(found: str, place: str) -> None:
    """Raise BadInput for a mention type that is not in GROUPS."""
    if found not in GROUPS:
        raise BadInput(
            f"{place}: found the semantic group {found!r}{did_you_mean(found, GROUPS)}; expected "
            f"one of {', '.join(GROUPS)}: mend the line, or fetch the corpus again"
        )


# -------------------------------------------------------------------------------------------------
# Files of mentions with their CUIs: for builds, which leave them out, and for evaluations.

_COLUMNS = ("mention", "cui")  # of a header, lower-cased
_LANGUAGE = "language"
_QUOTED = re.compile(r'"[^"\t]*"(?:\t"[^"\t]*")*')


def names_mentions(header: Sequence[str]) -> bool:
    """Whether a first line, lower-cased, names the columns of mentions and CUIs among others."""
    return set(_COLUMNS) <= set(header) and len(header) > len(_COLUMNS)


def _is_quoted(path: Path) -> bool:
    """Whether all fields of a first line stand in quotes, as R writes them; else those in a file
    are ordinary characters, as published sets have them.
    """
    if is_workbook(path):
        return False
    return _QUOTED.fullmatch(first_line(path)) is not None


def mention_languages(path: Path) -> list[str] | None:
    """The language of each mention of a file, "" if unknown; None without such a column.

    Args:
        path: of a file that `mention_rows` can read; there are as many rows, in the same order.
    """
    (_, names), *rows = tab_separated(path, quoted=_is_quoted(path))
    header = [name.lower() for name in names]
    if not names_mentions(header) or _LANGUAGE not in header:
        return None
    return [fields[header.index(_LANGUAGE)] for _, fields in rows]


def mention_rows(path: Path) -> list[tuple[str, str]]:
    """(mention, CUIs joined with "|") of each row of a tab-separated file.

    It has the two columns, with or without a header; or a header that names the columns mention and
    CUI among others, in any order.

    Raises:
        BadInput: if the file cannot be read, or a row has other columns or an empty one.
    """
    (_, names), *rows = tab_separated(path, quoted=_is_quoted(path))
    header = [name.lower() for name in names]
    if (
        not set(_COLUMNS) <= set(header)
        or len(header) == len(_COLUMNS)
        and header[0] == _COLUMNS[0]
    ):
        pairs = two_columns(path, "mention<TAB>CUI", quoted=_is_quoted(path))
    else:
        if not rows:
            raise BadInput(f"{path}: found a header and no rows; expected mentions and their CUIs")
        for number, fields in rows:
            if len(fields) != len(header):
                raise BadInput(
                    f"{path}:{number}: found {len(fields)} columns; expected the {len(header)} of "
                    "its header: mend the line, or write the file again"
                )
        at, cui_at = (header.index(name) for name in _COLUMNS)
        pairs = [(fields[at], fields[cui_at]) for _, fields in rows]
    found = []
    for mentioned, joined in pairs:
        cuis = tidy_concepts(joined)
        if not mentioned or not cuis:
            raise BadInput(
                f"{path}: found the mention {mentioned!r} with the CUIs {joined!r}; expected a "
                "mention and one CUI or more: mend or remove the row"
            )
        found.append((mentioned, cuis))
    return found
