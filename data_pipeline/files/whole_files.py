"""Files and folders that are whole or not there, however the process that writes them ends."""

import errno
import glob
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from data_pipeline.files.file_lock import NO_LOCKS, lock_file
from data_pipeline.files.streams import copy_to_stream, is_stream
from data_pipeline.process.errors import BadInput

# Hidden names beside a folder NAME while it is written: .NAME.partial is the new one, .NAME.old the
# one that gives way to it, and .NAME.lock is held by the process that writes.
PARTIAL, OLD, LOCK = "partial", "old", "lock"
# What versions of coder_jax that named such folders after their process may have left.
OF_A_PROCESS = re.compile(r"(partial|old|replaced)-(\d+)")


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Another name to write a file under; it becomes `path` once the disk has all of it.

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
            copy_to_stream(unfinished, path)
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
    """An empty folder to write in; it becomes `folder` once the disk has all of it.

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
    with only_writer(folder):
        recover_folder(folder)
        remove_leftovers(folder, PARTIAL)
        try:
            partial.mkdir()
            yield partial
            replace_folder(partial, folder)
        except BaseException:
            recover_folder(folder)
            shutil.rmtree(partial, ignore_errors=True)
            raise
        remove_leftovers(folder, OLD)


def beside(folder: Path, what: str) -> Path:
    """The hidden name beside a folder for PARTIAL, OLD or LOCK."""
    return folder.with_name(f".{folder.name}.{what}")


def replace_folder(new: Path, folder: Path) -> None:
    """Give `new`, a whole folder on the same disk, the name `folder`; what was there goes then.

    POSIX renames a folder in one step only where none, or an empty one, has the name. Else there
    are two steps, between which no folder has it: see `recover_folder`.
    """
    folder = folder.resolve()
    old, partial = beside(folder, OLD), beside(folder, PARTIAL)
    flush_folder(new)
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
    """Give a folder its name again if a process was killed while it replaced that folder.

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


def remove_leftovers(folder: Path, what: str) -> None:
    """Remove what writers of `folder` left that were killed; for the process that writes it now."""
    for found in leftovers(folder, what):
        shutil.rmtree(found, ignore_errors=True)


def leftovers(folder: Path, what: str) -> list[Path]:
    """The new (PARTIAL) or the old (OLD) folders that killed writers of `folder` left beside it."""
    found = [path for path in [beside(folder, what)] if path.is_dir()]
    for path in sorted(folder.parent.glob(f".{glob.escape(folder.name)}.*")):
        match = OF_A_PROCESS.fullmatch(path.name.removeprefix(f".{folder.name}."))
        if match and (match[1] == PARTIAL) == (what == PARTIAL) and not is_running(int(match[2])):
            found.append(path)
    return found


def is_running(process: int) -> bool:
    """Whether this machine has a process of that number, other than this one."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold the lock of those who write `folder`; it is not there when nobody writes.

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
    """The lock under a name that its holder removes: not one that lost its name meanwhile."""
    while (file := lock_file(path, shared=shared)) is not None:
        try:
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except FileNotFoundError:
            pass
        file.close()
    return None


def flush_folder(folder: Path) -> None:
    """Wait until the disk has all files of a folder, and their names."""
    for path in (folder, *folder.rglob("*")):
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_json(path: Path, content: Any) -> None:
    """Write JSON so that `path` is either absent or whole. ValueError for NaN and infinity."""
    text = json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False)
    with written_whole(path) as unfinished:
        unfinished.write_text(text + "\n", encoding="utf-8")
