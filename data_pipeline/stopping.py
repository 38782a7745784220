"""Stopping when asked to: SIGTERM (a preempted machine, a scheduler) and Ctrl-C end long work tidily.

The first signal only takes note; long work polls between pieces that are whole on disk, and raises
`Stopped` there. A second signal does not wait. Exit status 75 ("try again later", EX_TEMPFAIL) tells
a launcher that the same command goes on; 130 is a person's Ctrl-C.
"""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

TRY_AGAIN = 75
INTERRUPTED = 130

_asked: list[int] = []  # the signals that came; one process has one


class Stopped(Exception):
    """Work ended because a signal asked for it; what is needed to go on is on disk.

    Attributes:
        status: what the process returns.
    """

    def __init__(self) -> None:
        super().__init__("asked to stop")
        self.status = exit_status()


def asked() -> bool:
    """Whether a signal has asked this process to stop."""
    return bool(_asked)


def poll() -> None:
    """Raise `Stopped` if a signal has asked for it: call where nothing is half done."""
    if _asked:
        raise Stopped


def exit_status() -> int:
    """What a process that stopped returns: TRY_AGAIN, or INTERRUPTED after Ctrl-C."""
    return INTERRUPTED if _asked[:1] == [signal.SIGINT] else TRY_AGAIN


@contextmanager
def stop_when_asked(what_next: str | None) -> Iterator[None]:
    """Within, SIGTERM and Ctrl-C take note and say `what_next` on stderr; the second one ends all.

    With None (short work that does not poll), and outside the main thread, where Python takes no
    signals, they keep their usual meaning.
    """

    def take_note(number: int, _: object) -> None:
        if _asked:
            raise KeyboardInterrupt
        _asked.append(number)
        print(f"\n{signal.Signals(number).name}: {what_next}", file=sys.stderr, flush=True)

    _asked.clear()
    if what_next is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, take_note) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
        _asked.clear()
