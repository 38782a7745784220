"""Vectors of long lists of terms, kept on this machine: each list is encoded once, whoever asks.

They lie below $CODER_JAX_CACHE/vectors, or in the user's cache folder. KEY is a hash of all that
the vectors of a list depend on.

  KEY/vectors.npy, vectors.npy.json  as `write_vectors` writes them: what was stopped goes on
  KEY/checksum.json                  of vectors.npy, written last: without it the list is not whole
  KEY/lock                           held by the process that encodes the list; others wait for it
  KEY.used                           shared by all that write or read the list: it is not removed
                                     as long as one holds it

What was not used for longest is removed when all would need more than CODER_JAX_CACHE_GB.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import time
import weakref
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from data_pipeline.files.buckets import cache_folder, short_hash
from data_pipeline.files.contents import Checksum
from data_pipeline.files.json_files import read_json, typed
from data_pipeline.files.whole_files import newest_lock, write_json
from data_pipeline.process import stopping
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import tell

if TYPE_CHECKING:
    from coder_jax.encoding.encoder import TermEncoder
    from coder_jax.encoding.rows import RowsOfFile
    from coder_jax.encoding.term_lines import TermList

LEAST_TERMS = 2_000  # fewer are encoded in a second or two
LIMIT, DEFAULT_GB = "CODER_JAX_CACHE_GB", 10.0
VECTORS, CHECKSUM, LOCK = "vectors.npy", "checksum.json", "lock"
SOME_BYTES = 1 << 24
POLL_SECONDS = 0.2


def kept_folder() -> Path:
    """Where the vectors are."""
    return cache_folder() / "vectors"


def cached_vectors(
    encoder: TermEncoder,
    terms: Sequence[str],
    *,
    unit: bool = True,
    of_run: bool = False,
    progress: bool = False,
) -> RowsOfFile | None:
    """The vectors of terms as this machine keeps them, encoded now if it does not have them yet.

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
    from coder_jax.devices.agree import host_count
    from coder_jax.encoding.encoder_protocol import about_vectors, hash_of_encoder
    from coder_jax.encoding.term_lines import TERMS_PER_CHUNK, TermList

    limit = most_bytes()
    if not limit or len(terms) < LEAST_TERMS or host_count() > 1:
        return None
    digest = hash_of_encoder(encoder) if of_run else encoder.weights_hash
    if digest is None:
        return None
    listed = TermList(terms, TERMS_PER_CHUNK)
    about = about_vectors(encoder, str(encoder.name), digest, listed, "float32", unit=unit)
    folder = kept_folder() / key_of(encoder, terms, about)
    what = f"vectors of {len(terms):,} terms"
    try:
        vectors, is_new = read_or_write(encoder, listed, folder, about, limit, what, progress)
    except OSError as error:
        tell(f"{what}: not kept in {folder.parent} ({error.strerror or error})")
        return None
    if progress and is_new:
        tell(f"{what}: kept in the cache {folder} for the next time")
    elif progress:
        tell(f"{what}: read from the cache {folder} (--no-cache makes them anew)")
    return vectors


def most_bytes() -> float:
    """How large the folder may be; BadInput for a limit that is no size."""
    given = os.environ.get(LIMIT) or str(DEFAULT_GB)
    try:
        size = float(given)
    except ValueError:
        size = math.nan
    if not size >= 0:
        raise BadInput(f"{LIMIT} is {given!r}; expected gigabytes, such as 10, or 0 to keep none")
    return size * 1e9


def key_of(encoder: TermEncoder, terms: Sequence[str], about: dict[str, Any]) -> str:
    """A hash of all that vectors depend on: of equal keys the vectors are equal to the bit."""
    import jax
    import polars as pl

    from coder_jax.encoding.encoder_protocol import same_vectors
    from coder_jax.encoding.term_lines import terms_hash
    from data_pipeline.terminology.cleaning.rules import clean

    # What the rules make of the terms, too: a later version may have other rules of that name.
    cleaned = clean(pl.Series(terms, dtype=pl.String), encoder.settings.cleaning)
    parts = [
        json.dumps(same_vectors(about), sort_keys=True),
        terms_hash(cleaned.to_list()),
        encoder.reader.structure,
        jax.default_backend(),
    ]
    return short_hash(*(part.encode() for part in parts))


def read_or_write(
    encoder: TermEncoder,
    terms: TermList,
    folder: Path,
    about: dict[str, Any],
    limit: float,
    what: str,
    progress: bool,
) -> tuple[RowsOfFile, bool]:
    """The vectors in `folder`, and whether they were made now.

    Raises:
      OSError: the folder cannot be written or read, or there is no room.
    """
    from coder_jax.encoding.rows import RowsOfFile

    folder.parent.mkdir(parents=True, exist_ok=True)
    used = wait_for_lock(used_by(folder), shared=True)
    try:
        folder.mkdir(exist_ok=True)
        is_new = False
        if not is_undamaged(folder, about):
            waiting = f"{what}: another process is encoding them; waiting for it"
            with wait_for_lock(folder / LOCK, waiting):
                if not is_undamaged(folder, about):  # nobody made them meanwhile
                    write(encoder, terms, folder, about, limit, progress)
                    is_new = True
        os.utime(folder)  # used now
        vectors = RowsOfFile(folder / VECTORS)
    except BaseException:
        used.close()
        raise
    weakref.finalize(vectors, used.close)
    return vectors, is_new


def used_by(folder: Path) -> Path:
    """The file that those lock who use a folder."""
    return folder.with_name(f"{folder.name}.used")


def wait_for_lock(path: Path, waiting: str = "", *, shared: bool = False) -> IO[str]:
    """The lock, once no other process holds it; `waiting` is said before a wait."""
    while (file := newest_lock(path, shared=shared)) is None:
        if waiting:
            tell(waiting)
            waiting = ""
        stopping.poll()
        time.sleep(POLL_SECONDS)
    return file


def is_undamaged(folder: Path, about: dict[str, Any]) -> bool:
    """Whether vectors made of the same are there, byte for byte as they were written."""
    from coder_jax.encoding.vector_file import is_whole

    vectors = folder / VECTORS
    try:
        saved = typed(read_json(folder / CHECKSUM), Checksum, str(folder / CHECKSUM))
        return is_whole(vectors, about) and saved == checksum(vectors)
    except BadInput:  # a file is missing, or is no JSON
        return False


def checksum(path: Path) -> Checksum:
    """Of a file's bytes: one that changed is noticed, and several but once in four billion."""
    size = crc32 = 0
    with path.open("rb") as file:
        while content := file.read(SOME_BYTES):
            stopping.poll()
            size, crc32 = size + len(content), zlib.crc32(content, crc32)
    return {"bytes": size, "crc32": crc32}


def write(
    encoder: TermEncoder,
    terms: TermList,
    folder: Path,
    about: dict[str, Any],
    limit: float,
    progress: bool,
) -> None:
    """Encodes terms into the folder, going on from what is finished there."""
    from coder_jax.encoding.vector_file import write_vectors

    if (folder / CHECKSUM).exists():  # written last
        tell(f"{folder}: its vectors are damaged; they are made anew")
        clear(folder)
    row = about["vectors"]["width"] * 4
    make_room(folder, row * (terms.count + terms.per_chunk), limit)
    vectors = folder / VECTORS
    try:
        try:
            write_vectors(encoder, terms, vectors, about, progress=progress)
        except (BadInput, ValueError, EOFError):  # what was begun may be damaged
            clear(folder)
            write_vectors(encoder, terms, vectors, about, progress=progress)
        write_json(folder / CHECKSUM, checksum(vectors))
    except OSError:  # such as a full disk
        clear(folder)
        raise


def clear(folder: Path) -> None:
    """Removes all that is in a folder but its lock."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


def make_room(folder: Path, needed: int, limit: float) -> None:
    """Removes what was not used for longest until `needed` bytes are allowed, and free.

    OSError if they are not, even so.
    """
    with wait_for_lock(folder.with_name("room.lock")):
        others = [path for path in folder.parent.iterdir() if path.is_dir() and path != folder]
        others.sort(key=lambda path: path.stat().st_mtime)
        sizes = [size_of(path) for path in others]
        allowed = limit - sum(sizes)
        for path, size in zip(others, sizes, strict=True):
            if needed <= min(allowed, shutil.disk_usage(folder).free):
                return
            if remove_unused(path):
                allowed += size
        free = shutil.disk_usage(folder).free
    if needed > min(allowed, free):
        raise OSError(
            errno.ENOSPC,
            f"{needed / 1e9:.2f} GB are needed, {free / 1e9:.2f} GB are free, and {LIMIT} leaves "
            f"{max(allowed, 0) / 1e9:.2f} GB",
        )


def size_of(folder: Path) -> int:
    """The bytes of all files of a folder; one that goes meanwhile has none."""
    size = 0
    for path in folder.rglob("*"):
        try:
            size += path.stat().st_size
        except FileNotFoundError:
            continue
    return size


def remove_unused(folder: Path) -> bool:
    """Removes a folder unless a process is using it; whether it did."""
    used = newest_lock(used_by(folder))
    if used is None:
        return False
    with used:
        shutil.rmtree(folder)
        used_by(folder).unlink()
    return True
