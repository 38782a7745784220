"""A disk that is full while a dataset is built, said in a message."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data_pipeline.dataset.quiet_tensorflow import tf
from data_pipeline.process.errors import BadInput


@contextmanager
def explain_full_disk(work: Path) -> Iterator[None]:
    """Turns 'no space left' from Python or TensorFlow into BadInput."""
    try:
        yield
    except (OSError, tf.errors.ResourceExhaustedError) as error:
        is_python = isinstance(error, OSError)
        if is_python and error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free = shutil.disk_usage(work.parent).free
        kept = (
            f": finished shards are kept in {work}, and it goes on from there (delete that folder "
            "to give up)"
            if work.is_dir()
            else ""
        )
        raise BadInput(
            f"the disk is full: {error}. {free / 1e9:.2f} GB are free at {work.parent}. No dataset "
            f"was written. Free some space and run the same command again{kept}."
        ) from error
