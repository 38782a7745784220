"""Locks on files, which end with the process that holds them, however it ends."""

import errno
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from data_pipeline.process.errors import BadInput

# What file systems answer that have no locks, such as some network and FUSE mounts.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def lock_file(path: Path, *, shared: bool = False) -> IO[str] | None:
    """The file, locked until it is closed; None if another process holds it.

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
    """Hold the lock within; BadInput that says `held` if another process has it."""
    file = lock_file(path)
    if file is None:
        raise BadInput(held)
    with file:
        yield
