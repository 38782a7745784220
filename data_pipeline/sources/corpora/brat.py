"""Corpora in BRAT's stand-off format: texts, and beside them .ann files of mentions and notes.

A line `T1<TAB>DISO 15 36<TAB>mention` is a mention: its type, where it stands (characters of the
text, the end exclusive; of a mention with gaps several places, ";" between them), and its words. A
line `#1<TAB>AnnotatorNotes T1<TAB>note` is a note on it. Lines of other kinds (relations, events,
attributes, other notes) are left aside. A corpus is a folder, a .zip or a .tar.gz.
"""

from __future__ import annotations

import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from data_pipeline.files.bounds import check_unpacked
from data_pipeline.files.rows import decoded, unreadable
from data_pipeline.process.errors import BadInput

MENTION = re.compile(r"(T\d+)\t(\S+) (\d+ \d+(?:;\d+ \d+)*)\t(.*)", re.DOTALL)
NOTE = re.compile(r"#\d+\tAnnotatorNotes (T\d+)\t(.*)", re.DOTALL)
OTHER_LINES = ("R", "E", "A", "M", "N", "*", "#")  # what else BRAT writes
TAR_ENDINGS = (".tar.gz", ".tgz", ".tar")

Span = tuple[int, int]


@dataclass(frozen=True)
class Annotation:
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
) -> list[Annotation]:
    """The mentions of an .ann file, in its order, each with its note.

    Args:
      ann, text: what the .ann and the .txt file hold.
      place: the .ann file, for messages.
      check_type: raises BadInput for a type that is not known; its second argument is the place.
      example: what a mention looks like, for messages: "T1<TAB>DISO 15 36<TAB>mention".

    Raises:
      BadInput: a line that is none of BRAT's, a mention that is not where the text has it, a name
        that is there twice, or a note on no mention or on one that has a note.
    """
    found: dict[str, Annotation] = {}
    notes: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(ann.split("\n"), start=1):
        where, line = f"{place}:{number}", line.removesuffix("\r")
        if match := MENTION.fullmatch(line):
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
            found[name] = Annotation(name, kind, spans, words, number)
        elif match := NOTE.fullmatch(line):
            name, note = match.groups()
            if name in notes:
                raise BadInput(
                    f"{where}: found a second note on {name}, after that of line {notes[name][0]}; "
                    "expected one for each mention: take one of the two out"
                )
            notes[name] = number, note
        elif line.strip() and (line[0] not in OTHER_LINES or "AnnotatorNotes" in line):
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
    """BadInput where the text does not hold the words at their place."""
    there = " ".join(text[start:end] for start, end in spans)
    is_whole = all(start < end <= len(text) for start, end in spans)
    if there.split() != words.split() or not is_whole:
        raise BadInput(
            f"{place}: found the mention {words!r} where the text has {there!r} (of its {len(text)}"
            " characters); expected the same: text and mentions do not belong together, or were "
            "converted; fetch them again"
        )


def documents(path: Path) -> Iterator[tuple[PurePosixPath, str, str]]:
    """(name of the .ann file, what it holds, what its .txt file holds) of each document, sorted.

    BadInput for an .ann file without text, or a file that is not UTF-8.
    """
    held = contents(path, lambda name: name.suffix in (".ann", ".txt"))
    for name in sorted(held):
        if name.suffix == ".ann":
            ann, text = document(held, name, path)
            yield name, ann, text


def document(held: Mapping[PurePosixPath, bytes], name: PurePosixPath, path: Path) -> list[str]:
    """What an .ann file and the text beside it hold; BadInput without one, or of no UTF-8."""
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
        return dict(_packed_in_tar(path, wanted) if is_tar(path) else _packed_in_zip(path, wanted))
    except FileNotFoundError as error:
        raise unreadable(path, error) from error
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError) as error:
        kind = "a .tar.gz" if is_tar(path) else "a .zip"
        raise BadInput(
            f"{path}: cannot be read as {kind} file ({error}); fetch it again"
        ) from error


def is_tar(path: Path) -> bool:
    return path.name.lower().endswith(TAR_ENDINGS)


def names_in(path: Path) -> list[PurePosixPath]:
    """The names of all files in a folder or an archive; none where it cannot be read."""
    try:
        if path.is_dir():
            return [PurePosixPath(one.relative_to(path).as_posix()) for one in path.rglob("*")]
        if is_tar(path):
            with tarfile.open(path) as packed:
                return [PurePosixPath(name) for name in packed.getnames()]
        with zipfile.ZipFile(path) as archive:
            return [PurePosixPath(name) for name in archive.namelist()]
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError):
        return []


def _packed_in_zip(
    path: Path, wanted: Callable[[PurePosixPath], bool]
) -> Iterator[tuple[PurePosixPath, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            name = PurePosixPath(info.filename)
            if wanted(name):
                check_unpacked(f"{name} in {path}", info.compress_size, info.file_size)
                yield name, archive.read(info)


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
