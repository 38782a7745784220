"""Files of vectors: the record of their terms and encoder, writing in chunks, and a cache."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import select
import shutil
import time
import weakref
import zlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext, suppress
from dataclasses import asdict, dataclass
from io import RawIOBase
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Literal, Protocol

import numpy as np
from msgspec import UNSET, UnsetType

from data_pipeline import process
from data_pipeline.files.buckets import cache_folder, short_hash
from data_pipeline.files.identity import (
    VECTORS,
    Count,
    Hash,
    Positive,
    Width,
    differences,
    marked,
    read_identity,
    read_json,
    typed,
    write_identity,
)
from data_pipeline.files.tables import bounded_lines, check_is_text
from data_pipeline.files.whole import (
    aligned,
    locked,
    map_array,
    newest_lock,
    write_json,
    written_whole,
)
from data_pipeline.process import BadInput, progress_bar, tell

if TYPE_CHECKING:
    from coder_jax.models.hf_files import EncoderSettings


# -------------------------------------------------------------------------------------------------
# Terms to encode, read in chunks, with their number and hash.
#
# A file of one term per line is read through once, to count, hash and check its lines, and then
# chunk by chunk: however many terms there are, one chunk is in memory.

TERMS_PER_CHUNK = 1 << 16  # encoded and written at a time: what a kill may lose
_POLL_SECONDS = 0.5
_SOME_BYTES = 1 << 16


class TermLines:
    """The lines of a UTF-8 file, without byte order mark and carriage returns.

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
            process.poll()
            content = b"".join(lines)
            _update(digest, decode(content, name, self.count + 1))
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
    """Terms in memory, with the interface of `TermLines`."""

    def __init__(self, terms: Sequence[str], per_chunk: int):
        self._terms, self.per_chunk = terms, per_chunk
        self.count, self.chunks = len(terms), -(-len(terms) // per_chunk)
        self.hash = terms_hash(terms)

    def chunk(self, number: int) -> list[str]:
        """The terms of one chunk, from 0 on."""
        return list(self._terms[number * self.per_chunk : (number + 1) * self.per_chunk])


Terms = TermLines | TermList


_HALF = re.compile("[\ud800-\udfff]")


def strings_of(given: Iterable[str], expected: str = "strings, one after the other") -> list[str]:
    """The strings of any ordered container: a list, a generator, an array, a Series.

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
        if not one.isascii() and _HALF.search(one):
            raise BadInput(
                f"found {one[:60]!r} at place {place} (counted from 0), which has half of a "
                "character (a surrogate, left where a text was cut); expected whole characters: "
                "read it anew, or leave the half out"
            )
    return strings


def terms_hash(terms: Sequence[str]) -> str:
    """SHA-256 of terms in their order, each with a newline behind it."""
    digest = hashlib.sha256()
    for first in range(0, len(terms), 1 << 16):
        _update(digest, terms[first : first + (1 << 16)])
    return digest.hexdigest()


def _update(digest: hashlib._Hash, terms: Sequence[str]) -> None:
    """Adds terms to a hash."""
    digest.update("".join(f"{term}\n" for term in terms).encode())


def decode(content: bytes, name: str, first: int) -> list[str]:
    """The texts of consecutive UTF-8 lines; `first` is the number of the first one."""
    if first == 1:
        check_is_text(content, name)
    lines = content.split(b"\n")
    if not lines[-1]:  # what follows the last newline is no line
        lines.pop()
    try:
        text = b"\n".join(lines).decode("utf-8-sig" if first == 1 else "utf-8")
    except UnicodeDecodeError:  # which line?
        text = "\0"
    if "\0" in text:
        return [decode_line(line, name, number) for number, line in enumerate(lines, first)]
    return [line.rstrip("\r") for line in text.split("\n")] if lines else []


def decode_line(line: bytes, name: str, number: int) -> str:
    """The text of a line of UTF-8; a byte order mark and a carriage return are dropped."""
    if number == 1:
        check_is_text(line, name)
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{name}:{number}: found byte 0x{line[error.start]:02x}, which is not UTF-8; convert "
            "the file to UTF-8 first, or give `normalize` its --encoding"
        ) from error
    if "\0" in text:
        raise BadInput(
            f"{name}:{number}: found a zero byte; expected text in UTF-8: convert the file first, "
            "or give `normalize` its --encoding, such as utf-16-le"
        )
    return text.rstrip("\r\n")


def read_some(descriptor: int) -> bytes:
    """The next bytes from a pipe or a terminal, as soon as there are any; empty at its end.

    Raises:
      Stopped: a signal asked for it.
    """
    while not select.select([descriptor], [], [], _POLL_SECONDS)[0]:
        process.poll()
    return os.read(descriptor, _SOME_BYTES)


# -------------------------------------------------------------------------------------------------
# The record of how vectors were made: encoder, tokenizer and settings.
#
# Files of vectors and records of evaluations contain it.

# What a query's vector must share with these vectors to be compared with them.
_COMPARABLE = (
    *("weights_hash", "tokenizer_hash", "pooling", "cleaning", "max_length"),
    "attend_padding",
)


class TermReader(Protocol):
    """The protocol of what an encoder reads terms with, as far as vectors depend on it."""

    @property
    def tokenizer_hash(self) -> str: ...
    @property
    def lowercases(self) -> bool: ...
    @property
    def dtype(self) -> str: ...
    @property
    def structure(self) -> Any: ...
    def hash_of_parameters(self) -> str: ...


class Encoder(Protocol):
    """The protocol of a `TermEncoder`, as far as files of vectors need it."""

    @property
    def name(self) -> str | None: ...
    @property
    def settings(self) -> EncoderSettings: ...
    @property
    def reader(self) -> TermReader: ...
    @property
    def width(self) -> int: ...
    @property
    def weights_hash(self) -> str | None: ...
    def rates_of_backends(self, terms: Sequence[str]) -> dict[str, float]: ...
    def encode_chunks(
        self, chunks: Iterable[Sequence[str]], *, unit: bool = True, bar: Any = None
    ) -> Generator[np.ndarray, None, None]: ...


@dataclass(frozen=True, kw_only=True)
class EncoderProtocol:
    """How strings became vectors."""

    model: str  # folder or hub id
    weights_hash: str | None  # SHA-256 of the weight file, where it is known
    tokenizer_hash: str  # SHA-256 of its definition
    pooling: str
    max_length: int  # tokens, [CLS] and [SEP] included
    attend_padding: bool
    lowercases: bool  # whether the tokenizer does
    cleaning: str  # rule set of terminology.cleaning.rules, applied to mentions and dictionary
    dtype: str  # of the encoder's arithmetic
    prompt: str | UnsetType = UNSET  # what stands before each cleaned term, if anything
    width: int | UnsetType = UNSET  # the first so many numbers of a vector, if not all


@dataclass(frozen=True, kw_only=True)
class TermsOfFile:
    """Which terms a file of vectors is of."""

    count: Count
    hash: Hash
    per_chunk: Positive


@dataclass(frozen=True, kw_only=True)
class StoredVectors:
    """How vectors are stored."""

    width: Width
    dtype: Literal["float32", "float16"]
    unit: bool | UnsetType = UNSET  # False: as they come out of the pooling, else of length 1


@dataclass(frozen=True, kw_only=True)
class AboutVectors:
    """OUT.json beside a file of vectors: what they are made of."""

    format: str = VECTORS.format
    terms: TermsOfFile
    vectors: StoredVectors
    encoder: EncoderProtocol


@dataclass(frozen=True, kw_only=True)
class Checksum:
    """checksum.json of vectors that are kept on this machine."""

    bytes: Count
    crc32: Count


def encoder_protocol(
    encoder: Encoder, model: str, weights_hash: str | None = None
) -> EncoderProtocol:
    """The protocol of an encoder; `model` names it (folder, hub id, or step of a run)."""
    return EncoderProtocol(
        model=model,
        weights_hash=weights_hash,
        tokenizer_hash=encoder.reader.tokenizer_hash,
        lowercases=encoder.reader.lowercases,
        dtype=encoder.reader.dtype,
        **encoder.settings.recorded(),
    )


def hash_arrays(arrays: Iterable[Any]) -> str:
    """SHA-256 of the bytes of arrays, one after the other."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def hash_weights(folder: Path) -> str:
    """SHA-256 of the weight files of a Hugging Face folder, one after the other by name."""
    files = sorted(folder.glob("model*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()


def hash_of_encoder(encoder: Encoder) -> str:
    """SHA-256 of an encoder's weight files, or of its parameters if it was made in memory."""
    return encoder.weights_hash or encoder.reader.hash_of_parameters()


def about_vectors(
    encoder: Encoder,
    model: str,
    weights_hash: str,
    terms: Terms,
    dtype: Any,
    *,
    unit: bool = True,
) -> AboutVectors:
    """The record of how vectors are made, for `write_vectors`.

    Args:
      model: its name (folder or hub id), for people; the hash is what counts.
      terms: what is encoded.
      dtype: how a vector is stored, 'float32' or 'float16'.
      unit: vectors of length 1; else as they come out of the pooling.
    """
    return AboutVectors(
        terms=TermsOfFile(count=terms.count, hash=terms.hash, per_chunk=terms.per_chunk),
        vectors=StoredVectors(width=encoder.width, dtype=dtype, unit=UNSET if unit else False),
        encoder=encoder_protocol(encoder, model, weights_hash),
    )


def _same_vectors(about: AboutVectors) -> dict[str, Any]:
    """What must be equal in `about` to resume work: everything except the model's name."""
    values: dict[str, Any] = marked(VECTORS, about)
    del values["encoder"]["model"]
    return values


def _comparable(about: AboutVectors) -> dict[str, Any]:
    """What must be equal for vectors to be of these terms and comparable with a query's."""
    return {
        "encoder": {name: getattr(about.encoder, name) for name in _COMPARABLE}
        | {"prompt": about.encoder.prompt or "", "width": about.encoder.width or 0},
        "terms": {"count": about.terms.count, "hash": about.terms.hash},
        "vectors": {"unit": about.vectors.unit is not False},
    }


# -------------------------------------------------------------------------------------------------
# Rows of unit-length vectors, from an array or from a memory-mapped file.

_ENCODE = "encode the terms again with `python -m coder_jax encode`"
_ROWS_IN_CACHE = 512  # made unit at a time; NumPy would take memory anew for each step with more


class Rows(Protocol):
    """The protocol of vectors in `search` and evaluations: an array, or an object that reads like
    one.

    Attributes:
      shape: (n, D).
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> np.ndarray:
        """The rows of a slice, or of an array of their numbers, [n, D]."""


class RowsOfFile:
    """The vectors of a .npy file, float [n, D]; only requested rows are read.

    For a slice the file is mapped anew, and let go with the rows: in one mapping of the whole file
    all rows that were ever read would count as memory of this process until the system needs it.
    Numbered rows are read run by run, as a mapping would read the surroundings of each from the
    disk, too: megabytes for a row that lies alone.

    Args:
      path: of the file.
      remedy: what to do if it is damaged, for the message.

    Attributes:
      path, shape, dtype: of the file.

    Raises:
      BadInput: the file cannot be read, or has no rows that lie one after the other.
    """

    def __init__(self, path: Path, remedy: str = _ENCODE):
        mapped = map_array(path, remedy)
        if mapped.dtype.kind != "f" or mapped.ndim != 2 or not mapped.flags.c_contiguous:
            raise BadInput(
                f"{path}: found {mapped.dtype} of shape {mapped.shape}, or by columns; expected "
                f"float vectors [n, D], row by row; {remedy}"
            )
        self.path, self.shape, self.dtype = path, mapped.shape, mapped.dtype
        self._offset = mapped.offset

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """All rows, in memory or mapped: for `np.asarray`."""
        return np.array(self[:], dtype, copy=copy)

    def __getitem__(self, rows: Any, /) -> np.ndarray:
        if isinstance(rows, slice):
            return np.load(self.path, mmap_mode="r")[rows]
        distinct, places = np.unique(rows, return_inverse=True)
        if len(distinct) and not 0 <= distinct[0] <= distinct[-1] < len(self):
            raise IndexError(
                f"found rows {distinct[0]} to {distinct[-1]}; expected 0 to {len(self) - 1}"
            )
        found = np.empty((len(distinct), self.shape[1]), self.dtype)
        starts = np.flatnonzero(np.diff(distinct, prepend=-2) > 1).tolist()
        row_bytes = self.dtype.itemsize * self.shape[1]
        with self.path.open("rb", buffering=0) as file:
            for start, end in zip(starts, [*starts[1:], len(distinct)], strict=False):
                file.seek(self._offset + int(distinct[start]) * row_bytes)
                _read_whole(file, found[start:end])
        return found if np.array_equal(distinct, rows) else found[places]


class JoinedRows:
    """The rows of several `Rows`, concatenated; float32.

    Attributes:
      shape: (n, D), n of all.
    """

    def __init__(self, parts: Sequence[Rows]):
        self._parts = parts
        self._starts = np.cumsum([0, *map(len, parts)]).tolist()
        self.shape = (self._starts[-1], parts[0].shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any, /) -> np.ndarray:
        numbers = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows
        part_of = np.searchsorted(self._starts, numbers, side="right") - 1
        found = np.empty((len(numbers), self.shape[1]), np.float32)
        for number in np.unique(part_of):
            is_here = part_of == number
            if not 0 <= number < len(self._parts):
                raise IndexError(f"found the row {numbers[is_here][0]}; there are {len(self)}")
            found[is_here] = self._parts[number][numbers[is_here] - self._starts[number]]
        return found


def given_vectors(given: Any) -> np.ndarray | None:
    """The vectors that a Python user gives, [n, D]; None if they are not numbers.

    One vector is a row. BadInput for vectors of several widths, or more dimensions.
    """
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise BadInput(f"found vectors of several widths ({error}); expected one width") from error
    if array.dtype.kind not in "fiu" or array.shape == (0,):
        return None
    if array.ndim not in (1, 2):
        raise BadInput(f"found an array of shape {array.shape}; expected vectors [n, D] or [D]")
    return np.atleast_2d(array)


def _read_whole(file: RawIOBase, rows: np.ndarray) -> None:
    """Fills consecutive rows from the file's position; EOFError if the file ends before."""
    rest = rows.reshape(-1).view(np.uint8).data
    while len(rest):
        read = file.readinto(rest)
        if not read:
            raise EOFError(f"{file}: {len(rest)} bytes fewer than its header says")
        rest = rest[read:]


def unit(
    vectors: np.ndarray,
    what: str = "vectors",
    dtype: Any = np.float32,
    numbers: np.ndarray | None = None,
) -> np.ndarray:
    """Rows normalized to length 1, [n, D] of `dtype`, aligned for the devices; zero rows stay zero.

    Args:
      vectors: float [n, D].
      what, numbers: for messages, what the rows are, and the number of each if not its place.

    Raises:
      BadInput: a value is not finite.
    """
    found = aligned(np.shape(vectors), dtype)
    lengths = np.empty((len(vectors), 1), dtype)
    for first in range(0, len(vectors), _ROWS_IN_CACHE):
        part = slice(first, first + _ROWS_IN_CACHE)
        rows = np.asarray(vectors[part], dtype)
        lengths[part] = np.linalg.norm(rows, axis=1, keepdims=True)
        is_usable = np.isfinite(lengths[part]) & (lengths[part] > 0)
        np.divide(rows, np.where(is_usable, lengths[part], 1), out=found[part])
    broken = np.flatnonzero(~np.isfinite(lengths))
    if len(broken):
        first = broken[0] if numbers is None else numbers[broken[0]]
        raise BadInput(
            f"found {len(broken)} {what} of {len(vectors)} with NaN or infinite values (first: row "
            f"{first}); expected finite numbers: check the weights"
        )
    return found


def products(here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Dot products of all rows of one with all rows of the other, float [n, m].

    Raises:
      BadInput: vectors of two widths.
    """
    if here.shape[1] != there.shape[1]:
        raise BadInput(
            f"found vectors of widths {here.shape[1]} and {there.shape[1]}; expected one width"
        )
    return here @ there.T


# -------------------------------------------------------------------------------------------------
# A .npy file of the vectors of many terms, written in chunks. A stopped run can be resumed, and
# several hosts can share the work.
#
# While it grows there is a folder beside it, OUT.partial, with
#   about.json   what the vectors are made of: nothing else may go on from here
#   0000000.npy  a finished chunk; host i of n writes the chunks i, i + n, ...
#   joined.npy   begun when all chunks are there: each is appended and then deleted, so that the
#   disk
#                holds the vectors once and one chunk twice
# At the end joined.npy becomes OUT, about.json becomes OUT.json, and the folder goes. Every file
# but
# joined.npy has its name only when it is whole, so a process may be killed at any moment. (Not a
# `whole_folder`: it becomes files, the work on it goes on, and several hosts write in it.)

_ABOUT, _JOINED, _LOCK = "about.json", "joined.npy", "lock"
_DELETE_CHUNK = "delete this file and give the same command again: it encodes these terms anew"
_HEADER_BYTES = 128  # of a .npy file of two dimensions
# From so many terms on, which take some half a minute, backends are compared on so many first.
_COMPARED_FROM, _COMPARED_TERMS = 20_000, 512


def write_vectors(
    encoder: Encoder, terms: Terms, out: Path, about: AboutVectors, *, progress: bool = True
) -> bool:
    """Encodes terms into `out`, resuming earlier work; False if nothing was left to do.

    Every host calls it, with a folder that all of them see; the first one joins the chunks.

    Args:
      encoder, terms: what encodes, and what is encoded.
      out: the .npy file to write.
      about: from `about_vectors`.
      progress: show a progress bar on stderr.

    Raises:
      BadInput: `out` was begun with other terms or settings, another process is at it, the disk
        has no room for it, or the hosts differ in what they encode or do not see the same folder.
      Stopped: a signal asked a host for it; finished chunks are kept.
    """
    from coder_jax.devices.hosts import barrier, first_decides, is_first, must_agree

    for part in ("terms", "vectors", "encoder"):
        for name, value in marked(VECTORS, about)[part].items():
            must_agree(f"what is encoded ({part} {name})", value)
    work = _work_folder(out)
    if first_decides(_is_whole(out, about)):
        if is_first():
            shutil.rmtree(work, ignore_errors=True)
        return False
    if is_first():
        _begin(work, about)
    barrier("encode: folder made")
    if not (work / _ABOUT).exists():
        raise BadInput(
            f"{work}: this host does not see it; give --out a folder that all hosts share"
        )
    held = f"{work}: another process is encoding there; wait for it, or stop it"
    with locked(work / _LOCK, held) if is_first() else nullcontext():
        _together(
            lambda: _write_chunks(encoder, terms, work, about.vectors, progress=progress),
            lambda: all(_chunk_file(work, number).exists() for number in _unjoined(work, terms)),
        )
        _together(
            lambda: _join(work, out, terms, about) if is_first() else None,
            lambda: _is_whole(out, about),
        )
    return True


def _together(act: Callable[[], None], done: Callable[[], bool]) -> None:
    """Runs an action on all hosts and waits for all; raises Stopped on all if one has not done
    it.
    """
    from coder_jax.devices.hosts import barrier, first_decides, is_first

    with suppress(process.Stopped):  # or the others would wait for this host
        act()
    barrier("encode")
    if not first_decides(is_first() and done()):  # the first one writes
        raise process.Stopped


def _work_folder(out: Path) -> Path:
    """The folder of the chunks of `out`; if `out` is a link, beside the file that it points to."""
    out = out.resolve()
    return out.with_name(out.name + ".partial")


def about_file(out: Path) -> Path:
    """The file that says what the vectors in `out` are made of.

    It is beside `out`, or, where that is a link, perhaps beside the file that it leads to.
    """
    beside = out.with_name(out.name + ".json")
    if out.is_symlink() and not beside.exists():
        out = out.resolve()
        beside = out.with_name(out.name + ".json")
    return beside


def _is_whole(out: Path, about: AboutVectors) -> bool:
    """Whether `out` is complete, with the same provenance."""
    if not (out.exists() and about_file(out).exists()) or (_work_folder(out) / _JOINED).exists():
        return False
    found = read_identity(about_file(out), VECTORS, AboutVectors)
    return not differences(_same_vectors(found), _same_vectors(about))


def _begin(work: Path, about: AboutVectors) -> None:
    """Makes the folder, or opens one that was begun with the same provenance."""
    work.mkdir(exist_ok=True)
    if not (work / _ABOUT).exists():
        row = about.vectors.width * np.dtype(about.vectors.dtype).itemsize
        needed = row * (about.terms.count + about.terms.per_chunk)
        free = shutil.disk_usage(work).free
        if needed > free:
            shutil.rmtree(work)
            raise BadInput(
                f"{work.parent}: the vectors need {needed / 1e9:.2f} GB, and {free / 1e9:.2f} GB "
                "are free; make room, or store them as float16"
            )
        write_identity(work / _ABOUT, VECTORS, about)
    found = read_identity(work / _ABOUT, VECTORS, AboutVectors)
    changed = differences(_same_vectors(found), _same_vectors(about))
    if changed:
        raise BadInput(
            f"{work}: was begun with other input or settings ({'; '.join(changed)}); give the same "
            "as then, or another file to write, or delete the folder"
        )


def _write_chunks(
    encoder: Encoder, terms: Terms, work: Path, kind: StoredVectors, *, progress: bool
) -> None:
    """Writes this host's missing chunks; one is written while the next is computed.

    Args:
      kind: of `AboutVectors`.
    """
    from coder_jax.devices.hosts import host_count, host_index, is_first

    left_to_join = _unjoined(work, terms)
    mine = [one for one in left_to_join if one % host_count() == host_index()]
    missing = [number for number in mine if not _chunk_file(work, number).exists()]
    sizes = {n: min(terms.per_chunk, terms.count - n * terms.per_chunk) for n in mine}
    left = sum(sizes[number] for number in missing)
    done = sum(sizes.values()) - left
    if progress and is_first() and left >= _COMPARED_FROM:
        _tell_backends(encoder.rates_of_backends(terms.chunk(missing[0])[:_COMPARED_TERMS]))
    unit = kind.unit is not False
    with (
        progress_bar(
            total=sum(sizes.values()),
            initial=done,
            unit=" terms",
            desc="encoding",
            disable=not (progress and is_first()),
        ) as bar,
        ThreadPoolExecutor(1) as disk,
        # Closed at once if writing fails: it has a thread. Ended by the garbage collector, it could
        # wait for a lock that the collector's own thread holds.
        closing(encoder.encode_chunks(map(terms.chunk, missing), unit=unit, bar=bar)) as vectors,
    ):
        under_way = None
        for number, chunk in zip(missing, vectors, strict=True):
            if under_way is not None:
                under_way.result()
            under_way = disk.submit(_save_chunk, _chunk_file(work, number), chunk, kind.dtype)
        if under_way is not None:
            under_way.result()


def _tell_backends(rates: dict[str, float]) -> None:
    """Says which backend is fastest on this machine, where there is a choice."""
    if rates:
        each = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
        tell(
            f"terms per second on this machine: {each}. Choose with --backend; the model card says "
            "how exact each is"
        )


def _chunk_file(work: Path, number: int) -> Path:
    """The file of a finished chunk."""
    return work / f"{number:07}.npy"


def _save_chunk(path: Path, vectors: np.ndarray, dtype: str) -> None:
    """Writes a chunk, whole or not at all."""
    with written_whole(path) as unfinished, unfinished.open("wb") as file:
        np.save(file, vectors.astype(dtype))


def _unjoined(work: Path, terms: Terms) -> range:
    """The numbers of the chunks that are not in joined.npy, or not whole there."""
    rows = 0
    if (work / _JOINED).exists():
        about = read_identity(work / _ABOUT, VECTORS, AboutVectors).vectors
        size = (work / _JOINED).stat().st_size - _HEADER_BYTES
        rows = max(size, 0) // (about.width * np.dtype(about.dtype).itemsize)
    joined = terms.chunks if rows >= terms.count else rows // terms.per_chunk
    first = next((n for n in range(joined) if _chunk_file(work, n).exists()), joined)
    return range(first, terms.chunks)


def _join(work: Path, out: Path, terms: Terms, about: AboutVectors) -> None:
    """Appends the chunks to joined.npy, deleting each, and renames it to `out`."""
    joined, dtype = work / _JOINED, np.dtype(about.vectors.dtype)
    shape = (terms.count, about.vectors.width)
    header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    left = _unjoined(work, terms)
    chunks = [_chunk_of(work, number, terms, shape[1], dtype) for number in left]
    with joined.open("r+b" if joined.exists() else "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        # The rows of deleted chunks are already there; those of the next chunk may be there in
        # part.
        assert file.tell() == _HEADER_BYTES
        rows = min(left.start * terms.per_chunk, terms.count)
        file.seek(rows * shape[1] * dtype.itemsize, os.SEEK_CUR)
        file.truncate()
        for chunk in chunks:
            process.poll()
            vectors = chunk[:]
            if not np.isfinite(vectors).all():
                raise BadInput(f"{chunk.path} has NaN or infinite values; {_DELETE_CHUNK}")
            vectors.tofile(file)
            _flush(file)
            chunk.path.unlink()
    # In this order, as `_is_whole` is False until joined.npy is gone.
    write_identity(about_file(out), VECTORS, about)
    os.replace(joined, out.resolve())
    shutil.rmtree(work)


def _chunk_of(work: Path, number: int, terms: Terms, width: int, dtype: np.dtype) -> RowsOfFile:
    """A finished chunk, mapped; BadInput if it is damaged, or of another shape or type."""
    chunk = RowsOfFile(_chunk_file(work, number), _DELETE_CHUNK)
    rows = min(terms.per_chunk, terms.count - number * terms.per_chunk)
    if (chunk.shape, chunk.dtype) != ((rows, width), dtype):
        raise BadInput(
            f"{chunk.path} holds {chunk.dtype} {chunk.shape}; expected {dtype} {(rows, width)}; "
            f"{_DELETE_CHUNK}"
        )
    return chunk


def read_vectors(
    path: Path, encoder: Encoder, weights_hash: str, terms: Terms, again: str = ""
) -> RowsOfFile:
    """The vectors of terms that `write_vectors` wrote; rows are read as they are used.

    `again` says, for messages, how to make them anew, if not by `encode`.

    Raises:
      BadInput: no such file, or it was made of other terms or by another encoder.
    """
    again = again or (
        "encode the dictionary with this model and these settings: "
        f"python -m coder_jax encode --dictionary DICTIONARY --model MODEL --out {path}"
    )
    if (_work_folder(path) / _JOINED).exists():
        raise BadInput(f"{path}: is not finished; run the `encode` that was writing it once more")
    for needed in (path, about_file(path)):
        if not needed.is_file():
            raise BadInput(f"{needed}: there is no such file; {again}")
    found = read_identity(about_file(path), VECTORS, AboutVectors)
    expected = about_vectors(encoder, "", weights_hash, terms, found.vectors.dtype)
    changed = differences(_comparable(found), _comparable(expected))
    if changed:
        raise BadInput(f"{path}: was made of something else ({'; '.join(changed)}); {again}")
    vectors = RowsOfFile(path, again)
    shape = (terms.count, expected.vectors.width)
    if vectors.shape != shape:
        raise BadInput(f"{path}: found vectors of shape {vectors.shape}, not {shape}; {again}")
    return vectors


def _flush(file: Any) -> None:
    """Waits until the disk has what was written."""
    file.flush()
    os.fsync(file.fileno())


# -------------------------------------------------------------------------------------------------
# A cache, on disk, of the vectors of long lists of terms: each list is encoded once.
#
# They lie below $CODER_JAX_CACHE/vectors, or in the user's cache folder. KEY is a hash of all that
# the vectors of a list depend on.
#
#   KEY/vectors.npy, vectors.npy.json  as `write_vectors` writes them: what was stopped goes on
#   KEY/checksum.json                  of vectors.npy, written last: without it the list is not
#   whole
#   KEY/lock                           held by the process that encodes the list; others wait for it
#   KEY.used                           shared by all that write or read the list: it is not removed
#                                      as long as one holds it
#
# What was not used for longest is removed when all would need more than CODER_JAX_CACHE_GB.

LEAST_TERMS = 2_000  # fewer are encoded in a second or two
LIMIT, DEFAULT_GB = "CODER_JAX_CACHE_GB", 10.0
_CACHE_VECTORS, _CHECKSUM, _CACHE_LOCK = "vectors.npy", "checksum.json", "lock"
_CHECKSUM_BYTES = 1 << 24
_CACHE_POLL_SECONDS = 0.2


def kept_folder() -> Path:
    """The folder of the cache."""
    return cache_folder() / "vectors"


def cached_vectors(
    encoder: Encoder,
    terms: Sequence[str],
    *,
    unit: bool = True,
    of_run: bool = False,
    progress: bool = False,
) -> RowsOfFile | None:
    """The cached vectors of terms; encodes the terms first if they are not in the cache.

    Where they come from is said in a line on stderr. Of several processes that want the same list
    one encodes and the others wait.

    Args:
      encoder: one that comes from a folder or from the hub; or, if `of_run`, any.
      terms: n strings, of which the order counts.
      unit: vectors of length 1; else as they come out of the pooling.
      of_run: it was made in memory of what a run has learnt; its parameters are what tells it from
        others.
      progress: show a progress bar, and say the line.

    Returns:
      float32 [n, D]; None where they are not kept: of fewer than LEAST_TERMS terms, of another
      encoder in memory, on one of several hosts, or because the folder cannot be written or has no
      room, which is said.

    Raises:
      BadInput: CODER_JAX_CACHE_GB is no size, or what encoding raises.
      Stopped: a signal asked for it; the same call goes on from what is finished.
    """
    # Imported here, as they import jax: whoever asks for the folder needs none.

    from coder_jax.devices.hosts import host_count

    limit = _most_bytes()
    if not limit or len(terms) < LEAST_TERMS or host_count() > 1:
        return None
    digest = hash_of_encoder(encoder) if of_run else encoder.weights_hash
    if digest is None:
        return None
    listed = TermList(terms, TERMS_PER_CHUNK)
    about = about_vectors(encoder, str(encoder.name), digest, listed, "float32", unit=unit)
    folder = kept_folder() / _key_of(encoder, terms, about)
    what = f"vectors of {len(terms):,} terms"
    try:
        vectors, is_new = _read_or_write(encoder, listed, folder, about, limit, what, progress)
    except OSError as error:
        tell(f"{what}: not kept in {folder.parent} ({error.strerror or error})")
        return None
    if progress and is_new:
        tell(f"{what}: kept in the cache {folder} for the next time")
    elif progress:
        tell(f"{what}: read from the cache {folder} (--no-cache makes them anew)")
    return vectors


def _most_bytes() -> float:
    """The allowed size of the cache; BadInput for an invalid limit."""
    given = os.environ.get(LIMIT) or str(DEFAULT_GB)
    try:
        size = float(given)
    except ValueError:
        size = math.nan
    if not size >= 0:
        raise BadInput(f"{LIMIT} is {given!r}; expected gigabytes, such as 10, or 0 to keep none")
    return size * 1e9


def _key_of(encoder: Encoder, terms: Sequence[str], about: AboutVectors) -> str:
    """A hash of all that vectors depend on: equal keys mean bitwise equal vectors."""
    import jax
    import polars as pl

    from data_pipeline.terminology.cleaning import clean

    # Includes cleaned terms, as a later version may change the rules of that name.
    cleaned = clean(pl.Series(terms, dtype=pl.String), encoder.settings.cleaning)
    parts = [
        json.dumps(_same_vectors(about), sort_keys=True),
        terms_hash(cleaned.to_list()),
        encoder.reader.structure,
        jax.default_backend(),
    ]
    return short_hash(*(part.encode() for part in parts))


def _read_or_write(
    encoder: Encoder,
    terms: TermList,
    folder: Path,
    about: AboutVectors,
    limit: float,
    what: str,
    progress: bool,
) -> tuple[RowsOfFile, bool]:
    """The vectors in `folder`, and whether they were encoded now.

    Raises:
      OSError: the folder cannot be written or read, or there is no room.
    """

    folder.parent.mkdir(parents=True, exist_ok=True)
    used = _wait_for_lock(_used_by(folder), shared=True)
    try:
        folder.mkdir(exist_ok=True)
        is_new = False
        if not _is_undamaged(folder, about):
            waiting = f"{what}: another process is encoding them; waiting for it"
            with _wait_for_lock(folder / _CACHE_LOCK, waiting):
                if not _is_undamaged(folder, about):  # nobody made them meanwhile
                    _write(encoder, terms, folder, about, limit, progress)
                    is_new = True
        os.utime(folder)  # used now
        vectors = RowsOfFile(folder / _CACHE_VECTORS)
    except BaseException:
        used.close()
        raise
    weakref.finalize(vectors, used.close)
    return vectors, is_new


def _used_by(folder: Path) -> Path:
    """The lock file for users of a folder."""
    return folder.with_name(f"{folder.name}.used")


def _wait_for_lock(path: Path, waiting: str = "", *, shared: bool = False) -> IO[str]:
    """Take a lock, waiting for another process; `waiting` is printed before a wait."""
    while (file := newest_lock(path, shared=shared)) is None:
        if waiting:
            tell(waiting)
            waiting = ""
        process.poll()
        time.sleep(_CACHE_POLL_SECONDS)
    return file


def _is_undamaged(folder: Path, about: AboutVectors) -> bool:
    """Whether vectors of the same provenance are there, with the right checksum."""

    vectors = folder / _CACHE_VECTORS
    try:
        saved = typed(read_json(folder / _CHECKSUM), Checksum, str(folder / _CHECKSUM))
        return _is_whole(vectors, about) and saved == _checksum(vectors)
    except BadInput:  # a file is missing, or is no JSON
        return False


def _checksum(path: Path) -> Checksum:
    """A checksum of a file's bytes.

    It detects one changed byte always, and several but once in four billion.
    """
    size = crc32 = 0
    with path.open("rb") as file:
        while content := file.read(_CHECKSUM_BYTES):
            process.poll()
            size, crc32 = size + len(content), zlib.crc32(content, crc32)
    return Checksum(bytes=size, crc32=crc32)


def _write(
    encoder: Encoder,
    terms: TermList,
    folder: Path,
    about: AboutVectors,
    limit: float,
    progress: bool,
) -> None:
    """Encodes terms into the folder, resuming earlier work."""

    if (folder / _CHECKSUM).exists():  # written last
        tell(f"{folder}: its vectors are damaged; they are made anew")
        _clear(folder)
    row = about.vectors.width * 4
    _make_room(folder, row * (terms.count + terms.per_chunk), limit)
    vectors = folder / _CACHE_VECTORS
    try:
        try:
            write_vectors(encoder, terms, vectors, about, progress=progress)
        except (BadInput, ValueError, EOFError):  # what was begun may be damaged
            _clear(folder)
            write_vectors(encoder, terms, vectors, about, progress=progress)
        write_json(folder / _CHECKSUM, asdict(_checksum(vectors)))
    except OSError:  # such as a full disk
        _clear(folder)
        raise


def _clear(folder: Path) -> None:
    """Removes all that is in a folder but its lock."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != _CACHE_LOCK:
            path.unlink()


def _make_room(folder: Path, needed: int, limit: float) -> None:
    """Removes the least recently used lists until `needed` bytes are allowed and free.

    OSError if they are not, even so.
    """
    with _wait_for_lock(folder.with_name("room.lock")):
        others = [path for path in folder.parent.iterdir() if path.is_dir() and path != folder]
        others.sort(key=lambda path: path.stat().st_mtime)
        sizes = [_size_of(path) for path in others]
        allowed = limit - sum(sizes)
        for path, size in zip(others, sizes, strict=True):
            if needed <= min(allowed, shutil.disk_usage(folder).free):
                return
            if _remove_unused(path):
                allowed += size
        free = shutil.disk_usage(folder).free
    if needed > min(allowed, free):
        raise OSError(
            errno.ENOSPC,
            f"{needed / 1e9:.2f} GB are needed, {free / 1e9:.2f} GB are free, and {LIMIT} leaves "
            f"{max(allowed, 0) / 1e9:.2f} GB",
        )


def _size_of(folder: Path) -> int:
    """The total size of a folder's files; files that vanish meanwhile count 0."""
    size = 0
    for path in folder.rglob("*"):
        try:
            size += path.stat().st_size
        except FileNotFoundError:
            continue
    return size


def _remove_unused(folder: Path) -> bool:
    """Removes a folder unless a process is using it; returns whether it did."""
    used = newest_lock(_used_by(folder))
    if used is None:
        return False
    with used:
        shutil.rmtree(folder)
        _used_by(folder).unlink()
    return True
