"""What long work shows of itself: a bar on a terminal; in a log file a plain line now and then.

A file keeps each redrawing of a bar, so where stderr is no terminal there is a line every 30 s with
the time of day, and one at the end. With `--quiet` there is neither, nor another word of progress.
"""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm as Progress

SECONDS_BETWEEN_LINES = 30.0
QUIET = "print results, warnings and errors alone: no progress"  # of the flag --quiet

_quiet = [False]


def progress_bar(iterable: Iterable[Any] | None = None, **options: Any) -> Progress:
    """A progress bar on stderr, in the form that suits it.

    Args:
        iterable: what it goes through, if it is not moved by hand.
        options: of tqdm: total, desc, unit, unit_scale, initial, leave, disable.
    """
    form = Progress if on_terminal() else Lines
    options["disable"] = options.get("disable", False) or is_quiet() or sys.stderr is None
    return form(iterable, **options)


class Lines(Progress):
    """A bar's counts as lines of text, for log files."""

    def __init__(self, iterable: Iterable[Any] | None = None, **options: Any):
        # With `gui` tqdm itself writes nothing: no bar, no carriage return.
        options |= {"mininterval": SECONDS_BETWEEN_LINES, "miniters": 1, "gui": True}
        super().__init__(iterable, **options)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Print a line."""
        self._print("{remaining} left")

    def _print(self, time_in_words: str) -> None:
        shares = "{n_fmt}/{total_fmt}, {percentage:.0f}%" if self.total else "{n_fmt}"
        form = f"{self.desc or 'done'}: {shares}, {{rate_fmt}}, {time_in_words}{{postfix}}"
        text = self.format_meter(**{**self.format_dict, "bar_format": form})
        words = " ".join(text.split())
        print(time.strftime("%Y-%m-%d %H:%M:%S"), words, file=self.fp, flush=True)

    def close(self) -> None:
        """Print where it ended, unless the bar would have vanished."""
        if not self.disable and self.leave and self.n != self.initial:
            self._print("{elapsed} in all")
        super().close()

    def clear(self, *_: Any, **__: Any) -> None:
        """Lines stay."""

    @classmethod
    def write(cls, s: str, file: Any = None, end: str = "\n", nolock: bool = False) -> None:
        """Print another line."""
        print(s, file=file or sys.stdout, end=end, flush=True)


def without_other_bars(words: Iterable[str]) -> None:
    """No bars of Hugging Face's libraries where ours are lines, or none: before they are imported.

    Args:
        words: of the command line.
    """
    if "--quiet" in words or not on_terminal():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


@contextmanager
def quiet(wanted: bool = True) -> Iterator[None]:
    """Within, if it is wanted, nothing but results, warnings and errors is printed."""
    before, _quiet[0] = _quiet[0], wanted
    try:
        yield
    finally:
        _quiet[0] = before


def on_terminal() -> bool:
    """Whether stderr is a terminal; it is None in a process that was started without one."""
    return sys.stderr is not None and sys.stderr.isatty()


def is_quiet() -> bool:
    """Whether it was asked for."""
    return _quiet[0]


def tell(text: object) -> None:
    """Print a line about the work on stderr, unless quiet."""
    if not is_quiet():
        print(text, file=sys.stderr, flush=True)
