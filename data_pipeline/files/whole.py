"""Atomic writes of files and folders, locks, streams, NumPy arrays."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from data_pipeline.process import BadInput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike


# -------------------------------------------------------------------------------------------------
# File locks, which the operating system releases when their process ends.

# The errors of file systems without locks, such as some network and FUSE mounts.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def lock_file(path: Path, *, shared: bool = False) -> IO[str] | None:
    """An open, locked file (until it is closed); None if another process holds the lock.

    Args:
        path: of the file.
        shared: hold it together with others that share it; None if one holds it alone.

    Raises:
        OSError: the file cannot be opened, or its file system has no locks.
    """
    file = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return None
        raise
    return file


@contextmanager
def locked(path: Path, held: str) -> Iterator[None]:
    """Hold the lock inside the block; BadInput with the message `held` if another process holds
    it.
    """
    file = lock_file(path)
    if file is None:
        raise BadInput(held)
    with file:
        yield


# -------------------------------------------------------------------------------------------------
# Devices, pipes and the process's own output, which are written to and never replaced.

# What can be neither written to nor replaced. A disk is a device, too; writing would destroy it.
_REFUSED = {
    stat.S_IFDIR: "a folder",
    stat.S_IFBLK: "a disk",
    stat.S_IFSOCK: "a socket",
}


def is_stream(path: Path) -> bool:
    """Whether `path` is a device, a pipe, or this process's own output (such as /dev/stdout).

    False for a file and for what is not there.

    Raises:
        BadInput: for a folder, a disk or a socket.
    """
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except FileNotFoundError:
        return False
    if kind in _REFUSED:
        raise BadInput(
            f"{path} is {_REFUSED[kind]}; expected a file, or the name of a new one: give another"
        )
    return kind != stat.S_IFREG or _own_output(path) is not None


def is_stdout(path: Path) -> bool:
    """Whether `path` is this process's standard output."""
    return _own_output(path) == 1


def _own_output(path: Path) -> int | None:
    """1 if `path` is this process's stdout, 2 for its stderr, else None."""
    for descriptor in (1, 2):
        try:
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                return descriptor
        except OSError:  # it is not there, or the process has no such output
            continue
    return None


def _copy_to_stream(file: Path, stream: Path) -> None:
    """Copies a file to a stream; on a pipe this waits for a reader."""
    own = _own_output(stream)
    if own is not None:  # another descriptor would have a place of its own in the file behind it
        sys.stdout.flush()
        sys.stderr.flush()
        descriptor = os.dup(own)
    else:
        descriptor = os.open(stream, os.O_WRONLY)  # not to be made where it has gone meanwhile
    with file.open("rb") as content, open(descriptor, "wb") as target:
        shutil.copyfileobj(content, target)


# -------------------------------------------------------------------------------------------------
# Files and folders that are written atomically: whole or absent, even after a kill.

# Hidden names beside a folder NAME during writing: .NAME.partial is the new folder, .NAME.old the
# one that it replaces, and the writing process holds .NAME.lock.
PARTIAL, OLD, LOCK = "partial", "old", "lock"


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary name to write to; it is renamed to `path` once the file is on disk.

    After an error nothing of it stays. After a kill its other name may; the next writer takes it.
    Where `path` is a link, what it leads to is written. A device, a pipe or this process's own
    output cannot be replaced: all is written into it at the end.

    Raises:
        BadInput: if `path` is a folder, a disk or a socket.
    """
    if is_stream(path):
        with tempfile.TemporaryDirectory() as folder:
            unfinished = Path(folder) / "unfinished"
            yield unfinished
            _copy_to_stream(unfinished, path)
        return
    path = path.resolve()
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        yield unfinished
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """An empty folder to write in; it is renamed to `folder` once all of it is on disk.

    A folder that is there is replaced; whether it may be is the caller's question. After an error
    it is still there, and nothing of the new one stays. After a kill the one or the other is there,
    or `recover_folder`, which readers and the next writer call, gives the new one its name; what
    else is left the next writer removes.

    Raises:
        BadInput: if another process is writing the same folder.
    """
    folder = folder.resolve()  # with_name needs a name; a link goes on leading to the folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = beside(folder, PARTIAL)
    with _only_writer(folder):
        recover_folder(folder)
        shutil.rmtree(partial, ignore_errors=True)  # of a writer that was killed
        try:
            partial.mkdir()
            yield partial
            replace_folder(partial, folder)
        except BaseException:
            recover_folder(folder)
            shutil.rmtree(partial, ignore_errors=True)
            raise
        shutil.rmtree(beside(folder, OLD), ignore_errors=True)


def beside(folder: Path, what: str) -> Path:
    """The hidden name beside a folder for PARTIAL, OLD or LOCK."""
    return folder.with_name(f".{folder.name}.{what}")


def replace_folder(new: Path, folder: Path) -> None:
    """Rename `new`, a complete folder on the same disk, to `folder`, replacing what was there.

    POSIX renames a folder in one step only where none, or an empty one, has the name. Else there
    are two steps, between which no folder has it: see `recover_folder`.
    """
    folder = folder.resolve()
    old, partial = beside(folder, OLD), beside(folder, PARTIAL)
    _flush_folder(new)
    try:
        os.replace(new, folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        shutil.rmtree(old, ignore_errors=True)
        if new != partial:
            shutil.rmtree(partial, ignore_errors=True)  # not whole: it must not be recovered
        os.replace(folder, old)
        try:
            os.replace(new, folder)
        except FileNotFoundError:
            if not folder.is_dir():  # else a reader recovered it meanwhile
                raise
    shutil.rmtree(old, ignore_errors=True)


def recover_folder(folder: Path) -> None:
    """Rename a folder back if a process was killed while replacing it.

    There is an old one and none with the name only between the two renames of `replace_folder`.
    Then the new one is whole and gets the name; if it was written under a name of its own, the old
    one does. It is one rename, which fails where another process has done it before.
    """
    folder = folder.resolve()
    old = beside(folder, OLD)
    if folder.exists() or not old.is_dir():
        return
    for found in (beside(folder, PARTIAL), old):
        try:
            os.replace(found, folder)
            return
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return
            raise


@contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """Hold the lock for writing `folder`; its file exists only while somebody writes.

    Raises:
        BadInput: if another process holds it.
    """
    path = beside(folder, LOCK)
    try:
        file = newest_lock(path)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        yield  # as without locks: two writers at once are the user's care
        return
    if file is None:
        raise BadInput(f"{folder}: another process is writing it; wait for it, or stop it")
    with file:
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def newest_lock(path: Path, *, shared: bool = False) -> IO[str] | None:
    """Lock a file whose holder deletes it: retries if it was deleted before the lock was taken."""
    while (file := lock_file(path, shared=shared)) is not None:
        try:
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except FileNotFoundError:
            pass
        file.close()
    return None


def _flush_folder(folder: Path) -> None:
    """Wait until all files of a folder, and their names, are on disk."""
    for path in (folder, *folder.rglob("*")):
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with written_whole(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically. ValueError for NaN and infinity."""
    write_text(path, json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False) + "\n")


# -------------------------------------------------------------------------------------------------
# .npy files: damaged files and full disks give a clear message, whatever NumPy raises.


def map_array(
    path: Path, remedy: str, shape: tuple[int, ...] | None = None, dtype: str = "int32"
) -> np.memmap:
    """The array in a .npy file, memory-mapped.

    Args:
        path: the file.
        remedy: what to do about a damaged one, for the message.
        shape: what it must have; None: any shape, of any type.
        dtype: what it must have with this shape.

    Raises:
        BadInput: if it cannot be read, is no such file, or has another array.
    """
    import numpy as np

    try:
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy reads the header as Python, which fails in many ways
        problem = f"{type(error).__name__}: {error}".splitlines()[0]
        raise BadInput(f"{path} cannot be read ({problem}); {remedy}") from error
    if not isinstance(mapped, np.memmap):  # an .npz by another name
        mapped.close()
        raise BadInput(f"{path} holds several arrays; expected a .npy file of one; {remedy}")
    if shape is not None and (mapped.shape, mapped.dtype) != (shape, np.dtype(dtype)):
        raise BadInput(
            f"{path} holds {mapped.dtype} {mapped.shape}; expected {dtype} {shape}: {remedy}"
        )
    return mapped


def write_array(
    path: Path, shape: Sequence[int], dtype: np.dtype, parts: Iterable[np.ndarray]
) -> None:
    """Write a .npy file from chunks of rows, so that not all rows are in memory at once.

    They are written, not mapped: where a disk is full that is an error, but a mapping would end the
    process without a word (SIGBUS).

    Args:
        path: the file; one that is there is replaced.
        shape, dtype: of all rows.
        parts: [n, ...] of that dtype, which are all rows together.
    """
    import numpy as np

    header = {"descr": dtype.str, "fortran_order": False, "shape": tuple(shape)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for part in parts:
            part.tofile(file)


# -------------------------------------------------------------------------------------------------
# Aligned arrays, whose memory TensorFlow and JAX use without a copy.

# Bytes. TensorFlow aborts on a tensor that does not begin at a multiple of it; XLA on a CPU copies
# such an array first.
_ALIGNMENT = 64


def aligned(shape: int | tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
    """An uninitialized array of this shape that begins at a multiple of 64 bytes.

    NumPy's own begin at a multiple of 16.
    """
    import numpy as np

    dtype = np.dtype(dtype)
    size = math.prod(np.atleast_1d(shape).tolist()) * dtype.itemsize
    bytes_ = np.empty(size + _ALIGNMENT, np.uint8)
    first = -bytes_.ctypes.data % _ALIGNMENT
    return bytes_[first : first + size].view(dtype).reshape(shape)
