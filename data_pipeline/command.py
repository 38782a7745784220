"""What every command does around its work: messages without a traceback, signals, exit status."""

import errno
import sys
from collections.abc import Callable

from data_pipeline.errors import BadInput
from data_pipeline.stopping import INTERRUPTED, Stopped, stop_when_asked

# A disk that is full or may not be written to is the user's to mend: no traceback.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS)


def run_command(
    work: Callable[[], int],
    *,
    when_asked: str | None = "stopping; the same command goes on",
    when_stopped: str = "stopped; the same command goes on",
) -> int:
    """The exit status of `work()`: its own; 2 for bad input; 75 or 130 if it was asked to stop.

    Args:
        work: the command; long work polls `data_pipeline.stopping`.
        when_asked: what is said once SIGTERM or Ctrl-C has come; None for short work that does not
            poll, which they end at once.
        when_stopped: what is said at the end if it was asked to stop.
    """
    try:
        with stop_when_asked(when_asked):
            return work()
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except Stopped as stopped:
        print(when_stopped, file=sys.stderr)
        return stopped.status
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        print(f"error: {error}; make room or check the rights, and try again", file=sys.stderr)
        return 2
