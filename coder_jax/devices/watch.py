"""What the hosts of a run tell each other while they work: that one failed, or was asked to stop.

Words go through jax's coordination service, which lives in process 0. A host that dies without a
word is noticed by jax itself: at once where a collective on the CPU loses its connection, else when
its heartbeats stay out; jax then aborts the others (SIGABRT, status 134).
"""

import atexit
import os
import re
import sys
import threading
import time
from typing import Any

from jax.errors import JaxRuntimeError

from data_pipeline.process import stopping
from data_pipeline.process.command import message_of
from data_pipeline.process.errors import BadInput
from data_pipeline.process.stopping import INTERRUPTED, TRY_AGAIN, Stopped

WORDS = "coder_jax/words/"
FAILED = WORDS + "failed"
ASKED = WORDS + "asked"

POLL_SECONDS = 0.5
# How long a host's own error may take to come out before another's word ends it.
GRACE_SECONDS = 1.0
# The service ends with process 0, so it stays until the others must have read the word.
LINGER_SECONDS = 3.0

# How the runtime's own errors name a process that is no longer there.
HOST_LOST = re.compile(
    r"Gloo .* failed|remote process exited"
    r"|heartbeat timeout|Barrier (failed|timed out)|coordination service",
    re.IGNORECASE,
)
# What a hub or a bucket may say too; it counts in errors of jax's own class only.
CONNECTION_LOST = re.compile(r"Connection (closed|reset) by peer|Socket closed", re.IGNORECASE)


class HostLost(Stopped):
    """Another host of the run is gone or did not come; the same command goes on."""


class Watch(threading.Thread):
    """Reads the others' words twice a second, and speaks for this host.

    Args:
        client: of jax's coordination service.
        index: of this host.
    """

    def __init__(self, client: Any, index: int):
        super().__init__(daemon=True, name="host watch")
        self.client, self.index = client, index
        self.ended = threading.Event()
        self.following = False  # another host's word is about to end this process

    def run(self) -> None:
        while not self.ended.wait(POLL_SECONDS):
            self.say_asked()
            words = self.words()
            if FAILED in words:
                self.follow(words[FAILED])
            elif ASKED in words:
                stopping.ask(int(words[ASKED]))

    def words(self) -> dict[str, str]:
        """What has been said so far; nothing if process 0 is gone (jax ends this process then)."""
        try:
            return dict(self.client.key_value_dir_get(WORDS))
        except RuntimeError:
            return {}

    def say(self, key: str, value: str) -> None:
        """Tell all hosts. Only the first word counts."""
        try:
            self.client.key_value_set(key, value)
        except RuntimeError:
            return  # it has been said, or process 0 is gone

    def say_asked(self) -> None:
        """Pass the signal that came to this host on, if one came."""
        if number := stopping.signal_asked():
            self.say(ASKED, str(int(number)))

    def status_when_asked(self) -> int | None:
        """The exit status after the signal that was said first, if one was."""
        number = self.words().get(ASKED)
        return None if number is None else stopping.exit_status(int(number))

    def say_failed(self, status: int, reason: str) -> None:
        """Tell all hosts to leave with `status`, and leave at exit without waiting for them."""
        self.say(FAILED, f"{self.index} {status} {reason}")
        leave_at_exit(status, linger=self.index == 0)

    def follow(self, word: str) -> None:
        """Leave as another host did, unless this one is about to leave by itself."""
        index, status, reason = word.split(" ", 2)
        if int(index) == self.index or self.ended.wait(GRACE_SECONDS):
            return
        self.following = True
        print(f"error: host {index} ended this run: {reason}", file=sys.stderr)
        leave(int(status), linger=self.index == 0)

    def end(self) -> None:
        """Stop watching."""
        self.ended.set()
        if self is not threading.current_thread():
            self.join()


def fail(watch: Watch, error: BaseException) -> None:
    """Tell the others why this host leaves.

    Raises:
        HostLost: instead of `error`, where that only says that another host is gone.
    """
    lost = lost_host(error)
    if lost is None or isinstance(error, BadInput):
        watch.say_failed(status_of(error), f"{type(error).__name__}: {error}")
        return
    # A host that failed has said so just before: then the watch ends this process with its status.
    time.sleep(2 * POLL_SECONDS + GRACE_SECONDS)
    if watch.following:
        watch.join()
    watch.say_failed(TRY_AGAIN, "it lost the connection to another host")
    print(
        f"error: another host of this run is gone ({lost.splitlines()[0]}): it died, was preempted "
        "or lost its network; its own output says more",
        file=sys.stderr,
    )
    raise HostLost from error


def lost_host(error: BaseException | None) -> str | None:
    """What jax says of a lost host, in an error or in those that led to it; None if nothing."""
    while error is not None:
        text, jaxs_own = str(error), isinstance(error, JaxRuntimeError)
        if HOST_LOST.search(text) or (jaxs_own and CONNECTION_LOST.search(text)):
            return text
        error = error.__cause__ or error.__context__
    return None


def status_of(error: BaseException) -> int:
    """The exit status that `data_pipeline.process.command.run_command` gives an error."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return 1 if message_of(error) is None else 2


def leave_at_exit(status: int, linger: bool = False) -> None:
    """End with `status` once Python is done, without jax's wait for the other hosts."""
    atexit.register(leave, status, linger)


def leave(status: int, linger: bool) -> None:
    """End this process now."""
    sys.stdout.flush()
    sys.stderr.flush()
    if linger:
        time.sleep(LINGER_SECONDS)
    os._exit(status)
