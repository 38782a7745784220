"""Finds the files of a terminology release as downloaded, and unpacks them.

A release is a folder (META/, its parent, or the files themselves), a .zip, a folder or .zip of .nlm
files (zip archives by another name), with each file plain, as .gz, or as split parts
(`MRREL.RRF.aa.gz`, `MRREL.RRF.ab.gz`, ...). Plain files are used where they lie; everything else is
unpacked into a scratch folder that the caller removes.
"""

from __future__ import annotations

import errno
import gzip
import lzma
import os
import re
import shutil
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePath, PurePosixPath
from typing import IO

import numpy as np
import polars as pl

from data_pipeline import process
from data_pipeline.files.tables import (
    LONGEST_LINE,
    ZIP_ERRORS,
    check_unpacked,
    too_long,
    zip_members,
)
from data_pipeline.process import BadInput, progress_bar

# The files of the UMLS, and those of RxNorm, whose columns are the same.
_WANTED = (
    *("MRCONSO", "MRREL", "MRSTY", "MRCUI", "MRFILES"),
    *("RXNCONSO", "RXNREL", "RXNSTY"),
)
_OF_TERMS = ("MRCONSO", "RXNCONSO")
_PRESCRIBE = (
    "prescribe"  # RxNorm's folder of what is prescribed today, which is a part of the whole
)
# LOINC's folders of parts of its table, with files of the same names as in LoincTable.
_PARTS_OF_LOINC = {"LoincTableCore", "PanelsAndForms"}
_FILE_NAME = re.compile(
    rf"({'|'.join(_WANTED)})\.RRF(?:\.(?!gz)([a-z]{{2}}))?(\.gz)?", re.IGNORECASE
)
_COPY_BYTES = 8 << 20
_CHECKED_BYTES = 16 << 20


@dataclass(frozen=True)
class _Part:
    """A stored piece of a release file: a file in a folder, or a member of a zip archive."""

    folder: str  # where it lies, for messages and for telling two releases apart
    name: str
    size: int
    path: Path | None = None
    archive: zipfile.ZipFile | None = None
    member: str = ""

    def open(self) -> IO[bytes]:
        return self.archive.open(self.member) if self.archive else open(str(self.path), "rb")


@dataclass(frozen=True)
class Release:
    """The unpacked files of a release by their short names ("MRCONSO"), and their origin."""

    root: Path
    files: dict[str, Path]
    sources: list[dict]  # {"file": name, "bytes": stored size}
    name: str


def unpack_release(root: Path, scratch: Path) -> Release:
    """Finds the RRF files of the release at `root`, unpacking what is packed into `scratch`.

    Raises BadInput for a missing or ambiguous release, missing parts, or damaged archives.
    """
    with ExitStack() as open_archives:
        if root.is_file() and not _FILE_NAME.fullmatch(root.name) and is_rrf_terms(root):
            parts = {"MRCONSO": [_Part(str(root.parent), root.name, root.stat().st_size, root)]}
        else:
            parts = _choose(root, list(_find_parts(root, scratch, open_archives)))
        files = {
            name: _plain_file(f"{name}.RRF", pieces, scratch) for name, pieces in parts.items()
        }
    sources = [
        {"file": piece.name, "bytes": piece.size} for pieces in parts.values() for piece in pieces
    ]
    places = [str(root)] + [piece.folder for pieces in parts.values() for piece in pieces]
    return Release(root, files, sources, _release_name(root, places))


def is_rrf_terms(path: Path) -> bool:
    """Whether a file has the rows of MRCONSO or RXNCONSO, whatever its name; it may be a .gz."""
    if not path.is_file():
        return False
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            line = file.readline(LONGEST_LINE)
    except (OSError, EOFError, zlib.error):  # who reads it says so
        return False
    fields = line.decode("utf-8-sig", errors="replace").rstrip("\r\n").split("|")
    if len(fields) != 19:
        return False
    cui, language, text, suppress, end = (fields[place] for place in (0, 1, 14, 16, 18))
    is_language = len(language) == 3 and language.isalpha() and language.isupper()
    is_cui = cui.isascii() and cui.isalnum()  # what packs it may begin with other bytes
    return is_cui and bool(text) and is_language and suppress in ("", *"NEOY") and not end


def unpack_beside(file: Path, name: str, scratch: Path) -> Path | None:
    """The unpacked file of this short name ("MRSTY") in another file's folder; None if there is
    none.

    A .gz file is unpacked into `scratch`; split parts are not looked for.
    """
    for found in (f"{name}.RRF", f"{name}.RRF.gz"):
        if (path := file.with_name(found)).is_file():
            return _plain_file(
                f"{name}.RRF", [_Part(str(path.parent), found, path.stat().st_size, path)], scratch
            )
    return None


def unpack_matching(root: Path, wanted: re.Pattern[str], scratch: Path) -> list[tuple[Path, dict]]:
    """The files in a folder, in a .zip, or beside another file, whose names match a pattern.

    Returns, sorted by name:
      (plain file, {"file": its name, "bytes": its size}) of each; those of a .zip are unpacked into
      `scratch`.

    Raises:
      BadInput: for a damaged archive, or two files of one name.
    """
    with ExitStack() as archives:
        parts = sorted(_matching(root, wanted, archives), key=lambda part: (part.name, part.folder))
        for one, other in pairwise(parts):
            if one.name == other.name:
                raise BadInput(
                    f"{root} has {one.name} twice, in {one.folder} and {other.folder}; expected "
                    "each file once: move the one that is not of the release away"
                )
        return [
            (_plain_file(part.name, [part], scratch), {"file": part.name, "bytes": part.size})
            for part in parts
        ]


def is_matching(inside: PurePath, wanted: re.Pattern[str]) -> bool:
    """Whether a file at this path inside a release has the name of a wanted one, and is the whole
    where LOINC has parts of it, too.
    """
    return bool(wanted.fullmatch(inside.name)) and _PARTS_OF_LOINC.isdisjoint(inside.parts)


def whole_lines(path: Path) -> Iterator[tuple[bytes, bool]]:
    """A file in chunks of whole lines, with a progress bar.

    Yields:
      (the lines, whether they are the file's last one without the line break that was added here).

    Raises:
      BadInput: if the file cannot be read to its end, or has a line longer than `LONGEST_LINE`.
    """
    size, rest, lines = os.path.getsize(path), b"", 0
    bar = progress_bar(
        total=size, desc=f"check {path.name}", unit="B", unit_scale=True, leave=False
    )
    with reading(path), path.open("rb") as file, bar:
        while chunk := file.read(_CHECKED_BYTES):
            process.poll()
            bar.update(len(chunk))
            if end := chunk.rfind(b"\n") + 1:
                yield rest + chunk[:end], False
                lines += rest.count(b"\n") + chunk.count(b"\n")
                rest = chunk[end:]
            else:
                rest += chunk
            if len(rest) > LONGEST_LINE:
                raise too_long(str(path), lines + 1)
        if file.tell() != size:
            raise BadInput(
                f"{path}: {file.tell():,} bytes could be read, expected {size:,}: the file changed "
                "or was cut off meanwhile. Give the same command again when it is whole."
            )
    if rest:
        yield rest + b"\n", True


def scan_tabbed(path: Path, columns: list[str], header: Callable[[str], list[str]]) -> pl.LazyFrame:
    """A lazy table of a tab-separated UTF-8 file, in which every column is a string, "" if empty.

    Quotation marks are characters. Each line is checked first, since a CSV reader fills short lines
    with blanks without a word.

    Args:
      columns: what the first line must name.
      header: reads the names in the first line.

    Raises:
      BadInput: with file and line, for another header, a broken line, or bytes that are not UTF-8.
    """
    again, before = "fetch or unpack the file again", 0
    if not path.stat().st_size:
        raise BadInput(f"{path} is empty; expected {' '.join(columns)} and rows below: {again}")
    for chunk, cut_off in whole_lines(path):
        data = np.frombuffer(chunk, np.uint8)
        ends = np.flatnonzero(data == ord("\n"))
        tabs = np.searchsorted(np.flatnonzero(data == ord("\t")), ends)
        found = np.diff(tabs, prepend=0) + 1
        if not before:
            line = chunk[: ends[0]].decode("utf-8-sig", errors="replace").rstrip("\r")
            if header(line) != columns:
                raise BadInput(
                    f"{path}:1: found the header {line[:200].strip()!r}; expected "
                    f"{' '.join(columns)}, with tabs between: {again}"
                )
        if cut_off or (found != len(columns)).any():
            row = int((found != len(columns)).argmax())
            if not chunk.split(b"\n", row + 1)[row].strip(b"\r"):
                raise BadInput(
                    f"{path}:{before + row + 1}: found an empty line; expected {len(columns)} "
                    f"columns: take it out, or {again}"
                )
            raise BadInput(
                f"{path}:{before + row + 1}: found {found[row]} columns; expected {len(columns)} "
                f"and a line break, so it is cut off or damaged: {again}"
            )
        if not chunk.isascii():
            try:
                chunk.decode()
            except UnicodeDecodeError as error:
                row = int(np.searchsorted(ends, error.start))
                raise BadInput(
                    f"{path}:{before + row + 1}: found byte 0x{chunk[error.start]:02x}, which is "
                    f"not UTF-8: {again}"
                ) from error
        before += len(ends)
    return pl.scan_csv(
        path,
        separator="\t",
        quote_char=None,
        has_header=False,  # it was checked, and may be in capitals
        skip_rows=1,
        schema=dict.fromkeys(columns, pl.String),
        glob=False,
    ).select(pl.all().fill_null(""))


def _matching(root: Path, wanted: re.Pattern[str], archives: ExitStack) -> Iterator[_Part]:
    if root.suffix.lower() != ".zip" or root.is_dir():
        folder = root if root.is_dir() else root.parent
        for path in root.rglob("*") if root.is_dir() else folder.iterdir():
            if is_matching(path.relative_to(folder), wanted) and path.is_file():
                yield _Part(str(path.parent), path.name, path.stat().st_size, path)
        return
    archive = _open_zip(root, str(root), archives)
    for info in zip_members(
        archive, str(root), lambda name: is_matching(PurePosixPath(name), wanted)
    ):
        inside = PurePosixPath(info.filename)
        yield _Part(
            f"{root}/{inside.parent}",
            inside.name,
            info.file_size,
            archive=archive,
            member=info.filename,
        )


def release_paths(root: Path) -> list[Path]:
    """The files that a release at `root` is read from, sorted: RRF files, or else archives."""
    if not root.exists():
        raise BadInput(
            f"{root} does not exist; expected a UMLS release (folder, .zip, .nlm or MRCONSO.RRF) "
            "or an .obo file"
        )
    if root.is_file():
        return [root]
    found = sorted(path for path in root.rglob("*") if path.is_file())
    plain = [path for path in found if _FILE_NAME.fullmatch(path.name)]
    return plain or [path for path in found if path.suffix.lower() in (".nlm", ".zip")]


def _find_parts(root: Path, scratch: Path, archives: ExitStack) -> Iterator[_Part]:
    for path in release_paths(root):
        if not (match := _FILE_NAME.fullmatch(path.name)):
            yield from _parts_in_archive(path, path.name, scratch, archives)
        elif path == root and match[2]:
            raise BadInput(f"{root} is one part of several; give the folder that holds all parts")
        else:
            yield _Part(str(path.parent), path.name, path.stat().st_size, path)


def _parts_in_archive(
    file: Path | IO[bytes], label: str, scratch: Path, archives: ExitStack
) -> Iterator[_Part]:
    archive = _open_zip(file, label, archives)
    for info in zip_members(archive, label, _is_wanted):
        path = PurePosixPath(info.filename)
        if _FILE_NAME.fullmatch(path.name):
            folder = str(path.parent)
            yield _Part(folder, path.name, info.file_size, archive=archive, member=info.filename)
        else:
            inner = _member(archive, info, label, scratch, archives)
            yield from _parts_in_archive(inner, path.name, scratch, archives)


def _member(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, label: str, scratch: Path, archives: ExitStack
) -> Path | IO[bytes]:
    """An archive inside another: as it lies there, or unpacked into `scratch` if it is packed."""
    try:
        if info.compress_type == zipfile.ZIP_STORED:
            return archives.enter_context(archive.open(info))
        # Reading a zip needs seeks, which are slow inside a compressed member.
        scratch.mkdir(parents=True, exist_ok=True)
        return Path(archive.extract(info, scratch))
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError) as error:
        raise BadInput(
            f"{info.filename} in {label} is damaged or cut off ({error}); compare its size with "
            "the download page and fetch it again"
        ) from error


def _is_wanted(member: str) -> bool:
    path = PurePosixPath(member)
    return _FILE_NAME.fullmatch(path.name) is not None or path.suffix.lower() == ".nlm"


def _open_zip(file: Path | IO[bytes], label: str, archives: ExitStack) -> zipfile.ZipFile:
    try:
        return archives.enter_context(zipfile.ZipFile(file))
    except ZIP_ERRORS as error:
        raise BadInput(
            f"{label} cannot be read as a zip archive ({error}); it may be cut off: compare its "
            "size with the download page and fetch it again"
        ) from error


def _choose(root: Path, parts: list[_Part]) -> dict[str, list[_Part]]:
    """The parts of each wanted file, in order, from one release; unpacked files before packed
    ones.
    """
    whole = [part for part in parts if _PRESCRIBE not in PurePosixPath(part.folder).parts]
    parts = whole or parts
    releases = sorted({p.folder for p in parts if p.name.upper().startswith(_OF_TERMS)})
    if not releases:
        raise BadInput(
            f"no MRCONSO.RRF at {root}; expected a UMLS META folder or its parent, a release .zip, "
            ".nlm files, or MRCONSO.RRF itself (plain, .gz, or parts .aa.gz, .ab.gz), or RxNorm's "
            "with RXNCONSO.RRF; for an OBO ontology give its .obo file, for a table in an archive "
            "the table, and for a pack of MedCAT the table that it was made from"
        )
    if len(releases) > 1:
        raise BadInput(f"{root} holds {len(releases)} releases: {', '.join(releases)}; give one")
    by_file: dict[str, dict[str, _Part]] = defaultdict(dict)
    for part in parts:
        match = _FILE_NAME.fullmatch(part.name)
        assert match is not None
        suffix, packed = (match[2] or "").lower(), match[3]
        of_file = by_file[match[1].upper()]
        other = of_file.get(suffix)
        if other and bool(packed) == other.name.lower().endswith(".gz"):
            both = " and ".join(f"{p.folder}/{p.name} ({p.size:,} bytes)" for p in (other, part))
            raise BadInput(
                f"{root} holds {part.name} twice: {both}; expected each file once: move the one "
                "that is not of the release away"
            )
        if not packed or other is None:
            of_file[suffix] = part
    return {name: _ordered(name, found) for name, found in sorted(by_file.items())}


def _ordered(name: str, found: dict[str, _Part]) -> list[_Part]:
    if "" in found:
        return [found[""]]
    suffixes = sorted(found)
    expected = [chr(97 + i // 26) + chr(97 + i % 26) for i in range(len(suffixes))]
    if suffixes != expected:
        missing = sorted(set(expected) - set(suffixes))[0]
        raise BadInput(
            f"{name}.RRF comes in parts {', '.join(suffixes)}, but part {missing} is missing; "
            "fetch the missing part (or the .nlm file that holds it)"
        )
    return [found[suffix] for suffix in suffixes]


def _plain_file(name: str, parts: list[_Part], scratch: Path) -> Path:
    if len(parts) == 1 and parts[0].path and not parts[0].name.lower().endswith(".gz"):
        return parts[0].path
    scratch.mkdir(parents=True, exist_ok=True)
    target = scratch / name
    with open(target, "wb") as plain:
        for part in parts:
            _unpack_part(part, plain)
    return target


def _unpack_part(part: _Part, plain: IO[bytes]) -> None:
    bar = progress_bar(
        total=part.size, desc=f"unpack {part.name}", unit="B", unit_scale=True, leave=False
    )
    try:
        with bar, reading(f"{part.folder}/{part.name}"), part.open() as stored:
            packed = part.name.lower().endswith(".gz")
            stream = gzip.GzipFile(fileobj=stored) if packed else stored
            while chunk := _read(stream, f"{part.folder}/{part.name}"):
                plain.write(chunk)
                check_unpacked(f"{part.folder}/{part.name}", stored.tell(), plain.tell())
                bar.update(stored.tell() - bar.n)
                process.poll()
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, zipfile.BadZipFile) as error:
        raise BadInput(
            f"{part.folder}/{part.name} is damaged or cut off ({error}); compare its size with the "
            "download page and fetch it again"
        ) from error


def _read(stream: IO[bytes] | gzip.GzipFile, name: str) -> bytes:
    with reading(name):
        return stream.read(_COPY_BYTES)


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Turns errors while `path` is read from a failing disk or network folder into BadInput."""
    try:
        yield
    except OSError as error:
        is_written = error.errno in (errno.ENOSPC, errno.EDQUOT)  # not what is read: a full disk
        if is_written or isinstance(error, gzip.BadGzipFile):
            raise
        raise BadInput(
            f"{path} cannot be read: {error}. Look whether the disk is well, and give the same "
            "command again; if it fails again, fetch the file anew or copy it to another disk."
        ) from error


def _release_name(root: Path, places: list[str]) -> str:
    """The release, such as '2020AA', if a part of the path names one, else the name of the folder
    or file.
    """
    for place in places:
        if match := re.search(r"(?<!\d)(20\d\d-?A[ABC])(?![A-Za-z])", place, re.IGNORECASE):
            return match[1].replace("-", "").upper()
    is_inner = root.name.upper() in ("META", "RRF")
    name = root.resolve().parent.name if is_inner else root.resolve().name
    return name.split(".")[0]


def remove_scratch(scratch: Path) -> None:
    """Removes unpacked files; does nothing if the scratch folder was never needed."""
    if scratch.exists():
        shutil.rmtree(scratch)
