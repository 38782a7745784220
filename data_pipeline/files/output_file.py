"""The file that a command will write: whether it can, asked before the work and not after hours."""

import tempfile
from pathlib import Path

from data_pipeline.files.buckets import in_bucket
from data_pipeline.files.streams import is_stream
from data_pipeline.process.errors import BadInput


def check_output(path: Path, option: str, example: str) -> None:
    """See that a file can be written to `path`, a file, a new name, a device or a pipe.

    Args:
        path: what the user gave.
        option: the option that it was given for, such as '--json'.
        example: name of such a file, for the message.

    Raises:
        BadInput: if it cannot; nothing was changed.
    """
    if in_bucket(path):
        raise BadInput(
            f"{option}: found {path}; expected a file on this machine: copy it there after"
        )
    try:
        target = path.resolve()  # a link leads to the file that is written
        if not target.parent.is_dir():
            raise BadInput(f"{option}: there is no folder {target.parent}; make it first")
        if path.is_dir():
            raise BadInput(
                f"{option}: {path} is a folder; expected a file, such as {path / example}"
            )
        if not is_stream(path):
            with tempfile.TemporaryFile(dir=target.parent):
                pass
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        why = getattr(error, "strerror", None) or error
        raise BadInput(
            f"{option}: {path} cannot be written ({why}); check the rights of its folder, make "
            "room, or give another file"
        ) from error
