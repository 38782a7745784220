"""Long work over many rows, in chunks that are files: after a kill it goes on where it was.

FOLDER/chunks/0000000.npy  a finished chunk; host i of n makes the chunks i, i + n, ...
FOLDER/chunks/about        what they were made of, and how many rows each has: others are made anew

At the end all are joined into one array file, FILE, and the folder goes. FILE.about says what the
file was made of.
"""

import hashlib
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np

from coder_jax.devices.agree import barrier, first_decides, host_count, host_index, is_first
from data_pipeline.files.array_files import write_array
from data_pipeline.files.whole_files import written_whole
from data_pipeline.process import stopping
from data_pipeline.process.progress import progress_bar

CHUNKS, ABOUT = "chunks", "about"


def write_rows(
    path: Path,
    rows: int,
    make: Callable[[int, int], np.ndarray],
    *,
    chunk: int,
    about: str,
    what: str,
) -> None:
    """Write an array file of so many rows; all hosts call it.

    Nothing is done if it is there, made of the same.

    Args:
        path: of the file, in a folder that all hosts share.
        rows: how many it has.
        make: (first, last) -> the rows from first to last - 1.
        chunk: rows that are made at once.
        about: a hash of what the rows are made of.
        what: the work in words, for the progress bar.

    Raises:
        Stopped: on all hosts, if one was asked to stop; finished chunks are kept.
    """
    if is_made(path, about, chunk):
        return
    folder = path.parent / CHUNKS
    about = told(about, chunk)
    if is_first():
        noted = folder / ABOUT
        if not noted.exists() or noted.read_text(encoding="utf-8") != about:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            noted.write_text(about, encoding="utf-8")
    barrier("a folder for chunks")
    bounds = [(first, min(first + chunk, rows)) for first in range(0, rows, chunk)]
    files = [folder / f"{number:07d}.npy" for number in range(len(bounds))]
    mine = range(host_index(), len(bounds), host_count())
    with suppress(stopping.Stopped):  # or the others would wait for this host
        for number in progress_bar(mine, total=len(mine), desc=what, unit="chunk"):
            if not files[number].exists():
                made = make(*bounds[number])
                with written_whole(files[number]) as unfinished, unfinished.open("wb") as out:
                    np.save(out, made)
            stopping.poll()
    barrier("all chunks")
    if not first_decides(all(file.exists() for file in files)):
        raise stopping.Stopped
    if is_first():
        note_of(path).unlink(missing_ok=True)  # of a file that was made of something else
        with written_whole(path) as joined:
            like = np.load(files[0], mmap_mode="r")
            write_array(joined, (rows, *like.shape[1:]), like.dtype, map(np.load, files))
        with written_whole(note_of(path)) as note:
            note.write_text(about, encoding="utf-8")
        shutil.rmtree(folder)
    barrier("chunks are joined")


def is_made(path: Path, about: str, chunk: int) -> bool:
    """Whether `write_rows` would have nothing to do, as the first host sees it; all hosts call it.

    Args:
        path, about, chunk: as for `write_rows`.
    """
    note = note_of(path)
    there = path.exists() and note.exists()
    return first_decides(there and note.read_text(encoding="utf-8") == told(about, chunk))


def told(about: str, chunk: int) -> str:
    """What a note says: a device of another kind takes another number of rows at once."""
    return f"{about}, {chunk} rows at once"


def note_of(path: Path) -> Path:
    """The file that says what a file of rows was made of."""
    return path.with_name(f"{path.name}.about")


def remove_rows(*paths: Path) -> None:
    """Remove files of `write_rows`, those that are there."""
    for path in paths:
        path.unlink(missing_ok=True)
        note_of(path).unlink(missing_ok=True)


def hash_of(manifest: Mapping[str, Any], *parameters: Any) -> str:
    """What rows are made of, for `about` of `write_rows`: a dataset, and trees of arrays."""
    digest = hashlib.sha256(str(manifest["content_hash"]).encode())
    for array in jax.tree.leaves(parameters):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
