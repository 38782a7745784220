"""One training process per run folder: a lock that ends with its process, however it ends."""

import contextlib
import os
import socket
import time
from pathlib import Path
from typing import IO

from coder_jax.devices.agree import host_count
from data_pipeline.files.file_lock import NO_LOCKS, lock_file
from data_pipeline.process import stopping
from data_pipeline.process.errors import BadInput

LOCK = "lock"

# A network file system lets go of the lock of a machine that died once its lease is over.
LEASE_SECONDS = 120
RETRY_SECONDS = 2


def lock_run(out: Path) -> IO[str] | None:
    """Take OUT/lock until the file that comes back is closed or the process ends, even by kill -9.

    None where the file system has no locks; this is said.

    Raises:
        BadInput: if another process holds it: one of another machine still after LEASE_SECONDS.
        Stopped: if a signal asked for it meanwhile.
    """
    try:
        file = wait_for_lock(out)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        print(f"{out} cannot be locked ({error.strerror}): start no second run on it")
        return None
    # A full disk must not keep a run from going on: the name is only for the message below.
    with contextlib.suppress(OSError):
        os.ftruncate(file.fileno(), 0)
        os.write(file.fileno(), f"process {os.getpid()} on {socket.gethostname()}\n".encode())
    return file


def wait_for_lock(out: Path) -> IO[str]:
    """OUT/lock, locked at once or, if a process of another machine seems to hold it, in a while."""
    end = None
    while (file := lock_file(out / LOCK)) is None:
        owner = (out / LOCK).read_text(encoding="utf-8").strip() or "another process"
        _, elsewhere, machine = owner.rpartition(" on ")
        here = not elsewhere or machine == socket.gethostname()
        if here or (end is not None and time.monotonic() > end):
            raise BadInput(
                f"{owner} is training in {out}; wait until it ends or stop it, or choose another "
                "--out. Two processes would overwrite each other's checkpoints"
            )
        if end is None:
            end = time.monotonic() + LEASE_SECONDS
            print(f"{out} is locked by {owner}; waiting {LEASE_SECONDS} s, in case it is gone")
        if host_count() == 1:  # else the others, who wait for this host, would wait for ever
            stopping.poll()
        time.sleep(RETRY_SECONDS)
    return file
