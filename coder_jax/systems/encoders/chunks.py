"""Long work over many rows, in chunks that are files: after a kill it goes on where it was.

FOLDER/chunks/0000000.npy  a finished chunk; host i of n makes the chunks i, i + n, ...
FOLDER/chunks/about        what they were made of, and how many rows each has: others are made anew

At the end all are joined into one array file, and the folder goes.
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
    """Write an array file of so many rows; all hosts call it. Nothing is done if it is there.

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
    if first_decides(path.exists()):
        return
    folder = path.parent / CHUNKS
    about = f"{about}, {chunk} rows at once"  # a device of another kind takes another number
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
        with written_whole(path) as joined:
            like = np.load(files[0], mmap_mode="r")
            shape = (rows, *like.shape[1:])
            whole = np.lib.format.open_memmap(joined, "w+", like.dtype, shape)
            for (first, last), file in zip(bounds, files, strict=True):
                whole[first:last] = np.load(file)
            whole.flush()
            del whole
        shutil.rmtree(folder)
    barrier("chunks are joined")


def hash_of(manifest: Mapping[str, Any], *parameters: Any) -> str:
    """What rows are made of, for `about` of `write_rows`: a dataset, and trees of arrays."""
    digest = hashlib.sha256(str(manifest["content_hash"]).encode())
    for array in jax.tree.leaves(parameters):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
