"""Devices, pipes and a process's own output: what is written into, and never replaced by a file."""

import os
import shutil
import stat
import sys
from pathlib import Path

from data_pipeline.process.errors import BadInput

# What can be neither written into nor replaced: that of a disk, which a device is too, is lost.
REFUSED = {
    stat.S_IFDIR: "a folder",
    stat.S_IFBLK: "a disk",
    stat.S_IFSOCK: "a socket",
}


def is_stream(path: Path) -> bool:
    """Whether `path` is a device, a pipe, or what this process prints to, as /dev/stdout is.

    False for a file and for what is not there.

    Raises:
        BadInput: for a folder, a disk or a socket.
    """
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except FileNotFoundError:
        return False
    if kind in REFUSED:
        raise BadInput(
            f"{path} is {REFUSED[kind]}; expected a file, or the name of a new one: give another"
        )
    return kind != stat.S_IFREG or own_output(path) is not None


def is_stdout(path: Path) -> bool:
    """Whether `path` is where this process prints to."""
    return own_output(path) == 1


def own_output(path: Path) -> int | None:
    """1 if `path` is this process's stdout, 2 for its stderr, else None."""
    for descriptor in (1, 2):
        try:
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                return descriptor
        except OSError:  # it is not there, or the process has no such output
            continue
    return None


def copy_to_stream(file: Path, stream: Path) -> None:
    """Writes what is in a file to what `is_stream`; a pipe waits for its reader."""
    own = own_output(stream)
    if own is not None:  # another descriptor would have a place of its own in the file behind it
        sys.stdout.flush()
        sys.stderr.flush()
        descriptor = os.dup(own)
    else:
        descriptor = os.open(stream, os.O_WRONLY)  # not to be made where it has gone meanwhile
    with file.open("rb") as content, open(descriptor, "wb") as target:
        shutil.copyfileobj(content, target)
