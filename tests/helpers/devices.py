"""Devices that a test makes for itself: the system's own must never be in danger from one."""

import os
import stat
from pathlib import Path

import pytest

NULL, FULL = 3, 7  # what takes everything, and a disk without room


def device(path: Path, number: int) -> Path:
    """One of the kernel's memory devices under a name of its own; skips where none may be made."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, number))
        path.open("rb").close()
    except PermissionError:
        pytest.skip("only root makes devices, and not on every disk")
    return path
