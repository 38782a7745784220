"""What every command does around its work: messages without a traceback, signals, exit status."""

import errno
import shutil
import sys
from collections.abc import Callable

from data_pipeline.process.errors import BadInput
from data_pipeline.process.stopping import INTERRUPTED, Stopped, stop_when_asked

# A disk that is full or may not be written to is the user's to mend: no traceback.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)
# So is a path that cannot be: a file where a folder must be or the reverse, too long, in a circle.
PATH_ERRORS = (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP)


def run_command(
    work: Callable[[], int],
    *,
    when_asked: str | None = "stopping; the same command goes on",
    when_stopped: str = "stopped; the same command goes on",
) -> int:
    """The exit status of `work()`: its own; 2 for bad input; 75 or 130 if it was asked to stop.

    Args:
        work: the command; long work polls `data_pipeline.process.stopping`.
        when_asked: what is said once SIGTERM or Ctrl-C has come; None for short work that does not
            poll, which they end at once.
        when_stopped: what is said at the end if it was asked to stop.
    """
    try:
        with stop_when_asked(when_asked):
            return work()
    except Stopped as stopped:
        print(when_stopped, file=sys.stderr)
        return stopped.status
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except (BadInput, OSError) as error:
        message = message_of(error)
        if message is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        return 2


def message_of(error: BaseException) -> str | None:
    """What is printed of an error that the user can mend; None for a defect of the program."""
    if isinstance(error, BadInput):
        return str(error)
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        return f"{error}; make room or check the rights, and try again"
    if isinstance(error, shutil.Error):  # copies of several files, each with what went wrong
        copies = error.args[0]
        why = copies if isinstance(copies, str) else copies[0][2]
        return f"{why}; make room or check the rights, and try again"
    if isinstance(error, OSError) and error.errno in PATH_ERRORS:
        return f"{error}; check the path, or give another"
    return None
