"""What Orbax's threads print when they fail, kept off the terminal: it is raised as well.

One full disk or damaged file gives pages of tracebacks, one for each array under way, and the
message that says what to do would be lost among them.
"""

import logging
import sys
from typing import Any


def quieten() -> None:
    """From now on drop log records with a traceback, and the echoes of reads and writes dropped."""
    for name in ("absl", "asyncio"):
        logging.getLogger(name).addFilter(_is_one_line)
    if sys.unraisablehook is not _without_echoes:
        _before.append(sys.unraisablehook)
        sys.unraisablehook = _without_echoes


_before: list[Any] = []


def _is_one_line(record: logging.LogRecord) -> bool:
    return record.exc_info is None


def _without_echoes(unraisable: Any) -> None:
    if str(unraisable.exc_value) != "Event loop is closed":
        _before[-1](unraisable)
