"""Long work over many rows, in chunks that are files: after a kill it goes on where it was.

.FILE.chunks/0000000.npy  a finished chunk; host i of n makes the chunks i, i + n, ...
FILE.about                what FILE and its chunks are made of, and how many rows each chunk has

At the end all are joined into one array file, FILE, and the chunks go. What was made of something
else is made anew.
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
from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import progress_bar


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
        BadInput: if this host does not see the folder.
    """
    if is_made(path, about, chunk):
        return
    folder = chunks_of(path)
    if is_first() and not (folder.is_dir() and is_of(path, about, chunk)):
        remove_rows(path)
        folder.mkdir(parents=True)
        note_of(path).write_text(note(about, chunk), encoding="utf-8")
    barrier("a folder for chunks")
    if not folder.is_dir():
        raise BadInput(
            f"this host does not see {folder}, where hosts share the work on {what}; give several "
            "hosts an --out on a disk that all of them see, not in a bucket"
        )
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
        with written_whole(path) as joined:
            like = np.load(files[0], mmap_mode="r")
            write_array(joined, (rows, *like.shape[1:]), like.dtype, map(np.load, files))
        shutil.rmtree(folder)
    barrier("chunks are joined")


def is_made(path: Path, about: str, chunk: int) -> bool:
    """Whether `write_rows` has nothing left to make, as the first host sees it; all hosts call it.

    Then chunks go that a kill left while they were removed.

    Args:
        path, about, chunk: as for `write_rows`.
    """
    made = first_decides(path.exists() and is_of(path, about, chunk))
    if made and is_first():
        shutil.rmtree(chunks_of(path), ignore_errors=True)
    return made


def is_of(path: Path, about: str, chunk: int) -> bool:
    """Whether what is there of a file is made of the same."""
    there = note_of(path)
    return there.exists() and there.read_text(encoding="utf-8") == note(about, chunk)


def note(about: str, chunk: int) -> str:
    """What is noted of a file: a device of another kind makes another number of rows at once."""
    return f"{about}, {chunk} rows at once"


def note_of(path: Path) -> Path:
    """The file of the note."""
    return path.with_name(f"{path.name}.about")


def chunks_of(path: Path) -> Path:
    """The folder of the chunks of a file; hidden, so that it does not go into a bucket."""
    return path.with_name(f".{path.name}.chunks")


def remove_rows(*paths: Path) -> None:
    """Remove files of `write_rows`, whole or not, those that are there."""
    for path in paths:
        shutil.rmtree(chunks_of(path), ignore_errors=True)
        path.unlink(missing_ok=True)
        note_of(path).unlink(missing_ok=True)


def hash_of(manifest: Mapping[str, Any], *parameters: Any) -> str:
    """What rows are made of, for `about` of `write_rows`: a dataset, and trees of arrays."""
    digest = hashlib.sha256(str(manifest["content_hash"]).encode())
    for array in jax.tree.leaves(parameters):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
