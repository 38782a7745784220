"""One training process per run folder: a lock that ends with its process, however it ends."""

import contextlib
import errno
import os
import socket
from pathlib import Path
from typing import IO

from data_pipeline.errors import BadInput

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

LOCK = "lock"

# What file systems answer that have no locks, such as some network and FUSE mounts.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def lock_run(out: Path) -> IO[str] | None:
    """Take OUT/lock until the file that comes back is closed or the process ends, even by kill -9.

    None where the file system has no locks; this is said.

    Raises:
        BadInput: if another process holds it.
    """
    file = (out / LOCK).open("a+", encoding="utf-8")
    try:
        if fcntl is None:
            raise OSError(errno.ENOSYS, "no file locks on this system")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            file.seek(0)
            owner = file.read().strip() or "another process"
            file.close()
            raise BadInput(
                f"{owner} is training in {out}; wait until it ends or stop it, or choose another "
                "--out. Two processes would overwrite each other's checkpoints"
            ) from error
        file.close()
        if error.errno not in NO_LOCKS:
            raise
        print(f"{out} cannot be locked ({error.strerror}): start no second run on it")
        return None
    # A full disk must not keep a run from going on: the name is only for the message above.
    with contextlib.suppress(OSError):
        os.ftruncate(file.fileno(), 0)
        os.write(file.fileno(), f"process {os.getpid()} on {socket.gethostname()}\n".encode())
    return file
