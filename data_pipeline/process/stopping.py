"""Stopping when asked to: SIGTERM (preemption, a scheduler) and Ctrl-C end long work tidily.

The first signal only takes note; long work polls between pieces that are whole on disk, and raises
`Stopped` there. A second signal does not wait, unless it comes at once: Ctrl-C and schedulers reach
a command and those that it started, and the command passes its signal on to these. Exit status 75
("try again later", EX_TEMPFAIL) tells a launcher to start the same command again; 130 is a person's
Ctrl-C.
"""

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

TRY_AGAIN = 75
INTERRUPTED = 130
SAME_REQUEST_SECONDS = 2.0  # signals that come so soon after the first are no second request

_asked: list[int] = []  # the signal that counts: that of this process, or of another host
_came: list[float] = []  # when this process itself got the first one
_what_next: list[str] = []  # what is said when the first one comes


class Stopped(Exception):
    """Work ended because a signal asked for it; what is needed to go on is on disk.

    Attributes:
        status: what the process returns.
    """

    def __init__(self) -> None:
        super().__init__("asked to stop")
        self.status = exit_status(signal_asked())


def asked() -> bool:
    """Whether a signal has asked this process to stop."""
    return bool(_asked)


def ask(number: int) -> None:
    """Stop as if signal `number` had come, though it came to another host.

    Whoever preempts machines signals them one after the other: this process's own signal, which
    comes a moment later, must not count as the second one.
    """
    if _asked:
        return
    _asked.append(number)
    for sentence in _what_next:
        print(f"\n{signal.Signals(number).name}: {sentence}", file=sys.stderr, flush=True)


def signal_asked() -> int:
    """The signal that has asked this process, or another host, to stop; 0 if none has."""
    return _asked[0] if _asked else 0


def poll() -> None:
    """Raise `Stopped` if a signal has asked for it: call where nothing is half done."""
    if _asked:
        raise Stopped


def exit_status(number: int) -> int:
    """What a process returns that signal `number` stopped: INTERRUPTED for Ctrl-C."""
    return INTERRUPTED if number == signal.SIGINT else TRY_AGAIN


@contextmanager
def stop_when_asked(what_next: str | None) -> Iterator[None]:
    """Within, SIGTERM and Ctrl-C take note and say `what_next` on stderr; a second one ends all.

    With None (short work that does not poll), and outside the main thread, where Python takes no
    signals, they keep their usual meaning.
    """

    def take_note(number: int, _: object) -> None:
        now = time.monotonic()
        if not _came:
            _came.append(now)
            ask(number)
        elif now > _came[0] + SAME_REQUEST_SECONDS:
            raise KeyboardInterrupt

    forget()
    if what_next is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    _what_next.append(what_next)
    before = [signal.signal(number, take_note) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
        forget()


def forget() -> None:
    """Be as if no signal had come."""
    for notes in (_asked, _came, _what_next):
        notes.clear()
