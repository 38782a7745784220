"""Terms in, a .npy file of their vectors out: chunk by chunk, in any number of goes, by all hosts.

While it grows there is a folder beside it, OUT.partial, with
  about.json   what the vectors are made of: nothing else may go on from here
  0000000.npy  a finished chunk; host i of n writes the chunks i, i + n, ...
  joined.npy   begun when all chunks are there: each is appended and then deleted, so that the disk
               holds the vectors once and one chunk twice
At the end joined.npy becomes OUT, about.json becomes OUT.json, and the folder goes. Every file but
joined.npy has its name only when it is whole, so a process may be killed at any moment. (Not a
`whole_folder`: it becomes files, the work on it goes on, and several hosts write in it.)
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coder_jax.devices.agree import (
    barrier,
    first_decides,
    host_count,
    host_index,
    is_first,
    must_agree,
)
from coder_jax.encoding.encoder_protocol import about_vectors, comparable, same_vectors
from coder_jax.encoding.rows import RowsOfFile
from coder_jax.encoding.term_lines import Terms
from data_pipeline.files.file_lock import locked
from data_pipeline.files.identity import (
    VECTORS,
    differences,
    read_identity,
    write_identity,
)
from data_pipeline.files.whole_files import written_whole
from data_pipeline.process import stopping
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import progress_bar

if TYPE_CHECKING:
    from coder_jax.encoding.encoder import TermEncoder

ABOUT, JOINED, LOCK = "about.json", "joined.npy", "lock"


def write_vectors(
    encoder: TermEncoder, terms: Terms, out: Path, about: dict[str, Any], *, progress: bool = True
) -> bool:
    """Encodes terms into `out`, going on from what is there; False if all was there before.

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
    for part in ("terms", "vectors", "encoder"):
        for name, value in about[part].items():
            must_agree(f"what is encoded ({part} {name})", value)
    work = work_folder(out)
    if first_decides(is_whole(out, about)):
        if is_first():
            shutil.rmtree(work, ignore_errors=True)
        return False
    if is_first():
        begin(work, about)
    barrier("encode: folder made")
    if not (work / ABOUT).exists():
        raise BadInput(
            f"{work}: this host does not see it; give --out a folder that all hosts share"
        )
    held = f"{work}: another process is encoding there; wait for it, or stop it"
    with locked(work / LOCK, held) if is_first() else nullcontext():
        if not (work / JOINED).exists():
            together(
                lambda: write_chunks(encoder, terms, work, about["vectors"], progress=progress),
                lambda: all(chunk_file(work, number).exists() for number in range(terms.chunks)),
            )
        together(
            lambda: join(work, out, terms, about) if is_first() else None,
            lambda: is_whole(out, about),
        )
    return True


def together(act: Callable[[], None], done: Callable[[], bool]) -> None:
    """Acts on all hosts and waits for the last; raises Stopped on all if one has not done it."""
    with suppress(stopping.Stopped):  # or the others would wait for this host
        act()
    barrier("encode")
    if not first_decides(done()):
        raise stopping.Stopped


def work_folder(out: Path) -> Path:
    """The folder of the chunks of `out`; where that is a link, beside the file that is written."""
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


def is_whole(out: Path, about: dict[str, Any]) -> bool:
    """Whether `out` is there, finished, and made of the same."""
    if not (out.exists() and about_file(out).exists()) or (work_folder(out) / JOINED).exists():
        return False
    found = read_identity(about_file(out), VECTORS)
    return not differences(same_vectors(found), same_vectors(about))


def begin(work: Path, about: dict[str, Any]) -> None:
    """Makes the folder, or finds in it what was begun with the same."""
    work.mkdir(exist_ok=True)
    if not (work / ABOUT).exists():
        row = about["vectors"]["width"] * np.dtype(about["vectors"]["dtype"]).itemsize
        needed = row * (about["terms"]["count"] + about["terms"]["per_chunk"])
        free = shutil.disk_usage(work).free
        if needed > free:
            shutil.rmtree(work)
            raise BadInput(
                f"{work.parent}: the vectors need {needed / 1e9:.2f} GB, and {free / 1e9:.2f} GB "
                "are free; make room, or store them as float16"
            )
        write_identity(work / ABOUT, VECTORS, about)
    found = read_identity(work / ABOUT, VECTORS)
    changed = differences(same_vectors(found), same_vectors(about))
    if changed:
        raise BadInput(
            f"{work}: was begun with other input or settings ({'; '.join(changed)}); give the same "
            "as then, or another file to write, or delete the folder"
        )


def write_chunks(
    encoder: TermEncoder, terms: Terms, work: Path, kind: dict[str, Any], *, progress: bool
) -> None:
    """Writes those chunks of this host that are missing; one is written while the next is made.

    Args:
      kind: "vectors" of `about_vectors`.
    """
    mine = range(host_index(), terms.chunks, host_count())
    missing = [number for number in mine if not chunk_file(work, number).exists()]
    sizes = {n: min(terms.per_chunk, terms.count - n * terms.per_chunk) for n in mine}
    done = sum(sizes.values()) - sum(sizes[number] for number in missing)
    with (
        progress_bar(
            total=sum(sizes.values()),
            initial=done,
            unit=" terms",
            desc="encoding",
            disable=not (progress and is_first()),
        ) as bar,
        ThreadPoolExecutor(1) as disk,
    ):
        unit = kind.get("unit", True)
        vectors = encoder.encode_chunks(map(terms.chunk, missing), unit=unit, bar=bar)
        under_way = None
        for number, chunk in zip(missing, vectors, strict=True):
            if under_way is not None:
                under_way.result()
            under_way = disk.submit(save_chunk, chunk_file(work, number), chunk, kind["dtype"])
        if under_way is not None:
            under_way.result()


def chunk_file(work: Path, number: int) -> Path:
    """The file of a finished chunk."""
    return work / f"{number:07}.npy"


def save_chunk(path: Path, vectors: np.ndarray, dtype: str) -> None:
    """Writes a chunk, whole or not at all."""
    with written_whole(path) as unfinished, unfinished.open("wb") as file:
        np.save(file, vectors.astype(dtype))


def join(work: Path, out: Path, terms: Terms, about: dict[str, Any]) -> None:
    """Appends the chunks to joined.npy, deleting each, and gives it its name."""
    paths = [chunk_file(work, number) for number in range(terms.chunks)]
    joined, dtype = work / JOINED, np.dtype(about["vectors"]["dtype"])
    shape = (terms.count, about["vectors"]["width"])
    header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    first = next((n for n, path in enumerate(paths) if path.exists()), len(paths))
    with joined.open("r+b" if joined.exists() else "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        # The rows of deleted chunks are there; of the first that is left, part may be.
        rows = min(first * terms.per_chunk, terms.count)
        file.seek(rows * shape[1] * dtype.itemsize, os.SEEK_CUR)
        file.truncate()
        for path in paths[first:]:
            stopping.poll()
            np.load(path).tofile(file)
            flush(file)
            path.unlink()
    # In this order: `is_whole` says no until joined.npy has gone.
    write_identity(about_file(out), VECTORS, about)
    os.replace(joined, out.resolve())
    shutil.rmtree(work)


def read_vectors(
    path: Path, encoder: TermEncoder, weights_hash: str, terms: Terms, again: str = ""
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
    if (work_folder(path) / JOINED).exists():
        raise BadInput(f"{path}: is not finished; run the `encode` that was writing it once more")
    for needed in (path, about_file(path)):
        if not needed.is_file():
            raise BadInput(f"{needed}: there is no such file; {again}")
    found = read_identity(about_file(path), VECTORS)
    expected = about_vectors(encoder, "", weights_hash, terms, found["vectors"]["dtype"])
    changed = differences(comparable(found), comparable(expected))
    if changed:
        raise BadInput(f"{path}: was made of something else ({'; '.join(changed)}); {again}")
    vectors = RowsOfFile(path, again)
    shape = (terms.count, expected["vectors"]["width"])
    if vectors.shape != shape:
        raise BadInput(f"{path}: found vectors of shape {vectors.shape}, not {shape}; {again}")
    return vectors


def flush(file: Any) -> None:
    """Waits until the disk has what was written."""
    file.flush()
    os.fsync(file.fileno())
