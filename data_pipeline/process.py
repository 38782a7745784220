"""What all commands share: messages for bad input, progress, tidy stops on signals."""

import difflib
import errno
import os
import resource
import select
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm as Progress

# -------------------------------------------------------------------------------------------------
# The exception for bad input.


class BadInput(Exception):
    """Input that cannot be used as it is; commands print the message and exit with status 2.

    Anything else that is raised is a defect of the program and keeps its traceback.
    """


# -------------------------------------------------------------------------------------------------
# Progress: a bar on a terminal, a plain line every 30 s in a log file.
#
# Where stderr is not a terminal, redrawing a bar would fill the file; the lines there have the
# time of day, and there is one at the end. With `--quiet` no progress is printed.

_SECONDS_BETWEEN_LINES = 30.0

_quiet, _warns = [False], [True]


def progress_bar(iterable: Iterable[Any] | None = None, **options: Any) -> Progress:
    """A progress bar on stderr, in the form that suits it.

    Args:
        iterable: what it goes through, if it is not moved by hand.
        options: of tqdm: total, desc, unit, unit_scale, initial, leave, disable.
    """
    form = Progress if _on_terminal() else _Lines
    options["disable"] = options.get("disable", False) or is_quiet() or sys.stderr is None
    return form(iterable, **options)


class _Lines(Progress):
    """Progress as lines of text, for log files."""

    def __init__(self, iterable: Iterable[Any] | None = None, **options: Any):
        # With `gui` tqdm itself writes nothing.
        options |= {"mininterval": _SECONDS_BETWEEN_LINES, "miniters": 1, "gui": True}
        super().__init__(iterable, **options)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Print a line."""
        self._print("{remaining} left")

    def _print(self, time_in_words: str) -> None:
        shares = "{n_fmt}/{total_fmt}, {percentage:.0f}%" if self.total else "{n_fmt}"
        # tqdm writes a slow rate as "1.9s/step", and that of a unit in words as "1.9s/ terms".
        rate = "{rate_noinv_fmt}" if self.unit.startswith(" ") else "{rate_fmt}"
        form = f"{self.desc or 'done'}: {shares}, {rate}, {time_in_words}{{postfix}}"
        text = self.format_meter(**{**self.format_dict, "bar_format": form})
        words = " ".join(text.split())
        print(time.strftime("%Y-%m-%d %H:%M:%S"), words, file=self.fp, flush=True)

    def close(self) -> None:
        """Print the final count, unless the bar was to vanish."""
        if not self.disable and self.leave and self.n != self.initial:
            self._print("{elapsed} in all")
        super().close()

    def clear(self, *_: Any, **__: Any) -> None:
        """Do nothing: lines stay."""

    @classmethod
    def write(cls, s: str, file: Any = None, end: str = "\n", nolock: bool = False) -> None:
        """Print another line."""
        print(s, file=file or sys.stdout, end=end, flush=True)


def without_other_bars(words: Iterable[str]) -> None:
    """Turn off Hugging Face's progress bars where ours are lines or off; call before they are
    imported.

    Args:
        words: of the command line.
    """
    if "--quiet" in words or not _on_terminal():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


@contextmanager
def quiet(wanted: bool = True, *, warnings: bool = True) -> Iterator[None]:
    """In the block, if wanted, print only results, errors and, if wanted, warnings."""
    before, _quiet[0], _warns[0] = (_quiet[0], _warns[0]), wanted, warnings
    try:
        yield
    finally:
        _quiet[0], _warns[0] = before


def _on_terminal() -> bool:
    """Whether stderr is a terminal; it is None in a process started without one."""
    return sys.stderr is not None and sys.stderr.isatty()


def is_quiet() -> bool:
    """Whether --quiet is in effect."""
    return _quiet[0]


def tell(text: object) -> None:
    """Print a line of progress on stderr, unless quiet; a line that begins with "warning:" even
    so.
    """
    if not is_quiet() or (_warns[0] and str(text).startswith("warning:")):
        print(text, file=sys.stderr, flush=True)


# -------------------------------------------------------------------------------------------------
# Stopping on request: SIGTERM (preemption, a scheduler) and Ctrl-C end long work tidily.
#
# The first signal only sets a flag; long work polls it where all results so far are on disk, and
# raises `Stopped` there. A second signal does not wait, unless it comes at once: Ctrl-C and
# schedulers reach a command and those that it started, and the command passes its signal on to
# these. Exit status 75 ("try again later", EX_TEMPFAIL) tells a launcher to start the same command
# again; 130 is a person's Ctrl-C.

TRY_AGAIN = 75
INTERRUPTED = 130
_SAME_REQUEST_SECONDS = 2.0  # signals that come so soon after the first are no second request

_asked: list[int] = []  # the signal that counts: that of this process, or of another host
_came: list[float] = []  # when this process itself got the first one
_what_next: list[str] = []  # what is said when the first one comes


class Stopped(Exception):
    """The exception that ends work on a signal; what is needed to resume is on disk.

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
    """Stop as on signal `number`, which another host received.

    Whoever preempts machines signals them one after the other: this process's own signal, which
    comes a moment later, must not count as the second one.
    """
    if _asked:
        return
    _asked.append(number)
    for sentence in _what_next:
        print(f"\n{signal.Signals(number).name}: {sentence}", file=sys.stderr, flush=True)


def signal_asked() -> int:
    """The signal that asked this process or another host to stop; 0 if none."""
    return _asked[0] if _asked else 0


def poll() -> None:
    """Raise `Stopped` if a signal has asked for it; call where nothing is half done."""
    if _asked:
        raise Stopped


def exit_status(number: int) -> int:
    """The exit status after signal `number`: INTERRUPTED for Ctrl-C, otherwise TRY_AGAIN."""
    return INTERRUPTED if number == signal.SIGINT else TRY_AGAIN


@contextmanager
def _stop_when_asked(what_next: str | None) -> Iterator[None]:
    """In the block, the first SIGTERM or Ctrl-C sets the flag and prints `what_next`; a second one
    ends the process.

    With None (short work that does not poll), and outside the main thread, where Python takes no
    signals, they keep their usual meaning.
    """

    def take_note(number: int, _: object) -> None:
        now = time.monotonic()
        if not _came:
            _came.append(now)
            ask(number)
        elif now > _came[0] + _SAME_REQUEST_SECONDS:
            raise KeyboardInterrupt

    _forget()
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
        _forget()


def _forget() -> None:
    """Reset the flag, as if no signal had come."""
    for notes in (_asked, _came, _what_next):
        notes.clear()


# -------------------------------------------------------------------------------------------------
# Suggestions for mistyped names.


def did_you_mean(found: str, known: Iterable[str]) -> str:
    """ "; did you mean NAME?" with the most similar known name; "" where none is similar."""
    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(found.lower(), names, n=1)
    return f"; did you mean {names[near[0]]}?" if near else ""


# -------------------------------------------------------------------------------------------------
# What surrounds every command's work: errors without a traceback, signals, exit status.

# Full and read-only disks are problems that the user can solve: no traceback.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)
# NumPy reports only in words that it could not write all of an array.
_UNWRITTEN = ("Not enough free space to write", "requested and")
# Impossible paths are the user's problem, too: a file instead of a folder or the reverse, too long,
# a link cycle.
_PATH_ERRORS = (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP)
# Pipes and terminals that nobody reads.
_PIPE_ERRORS = (errno.EPIPE, errno.ENXIO)
_INSTALL = (
    "use the environment that `bash launch/train.sh` makes (source .venv/bin/activate), or install "
    "what is needed: pip install -r requirements.txt -c constraints.txt"
)
# The extra of pyproject.toml that brings a package.
_EXTRAS = {
    **dict.fromkeys(("tensorflow", "tensorflow_datasets", "absl"), "train"),
    "torch": "torch",
    **dict.fromkeys(("gensim", "ahocorasick", "abbreviations", "bm25s", "ot"), "text"),
    **dict.fromkeys(("onnx", "onnxruntime", "onnxscript"), "onnx"),
    "sentence_transformers": "sentence-transformers",
    **dict.fromkeys(("matplotlib", "threadpoolctl"), "report"),
    **dict.fromkeys(("s3fs", "gcsfs"), "cloud"),
    **dict.fromkeys(("fastapi", "uvicorn"), "serve"),
    "spacy": "spacy",
}
# The exit status that a shell shows for a process whose reader has gone (128 + SIGPIPE).
_NOT_READ = 141
_OURS = ("coder_jax", "data_pipeline", "launch", "benchmarks")


def run_command(
    work: Callable[[], int],
    *,
    when_asked: str | None = "stopping; the same command goes on",
    when_stopped: str = "stopped; the same command goes on",
) -> int:
    """The exit status of `work()`: its own; 2 for bad input; 75 or 130 if it was stopped.

    If the reader of its output, such as `head`, goes before the end, 141.

    Args:
        work: the command; long work polls `data_pipeline.process`.
        when_asked: what is said once SIGTERM or Ctrl-C has come; None for short work that does not
            poll, which they end at once.
        when_stopped: what is said at the end if it was asked to stop.
    """
    left = False
    try:
        with _stop_when_asked(when_asked):
            try:
                status = work()
            finally:
                left = not _flush_stdout()
        return _NOT_READ if left else status
    except Stopped as stopped:
        print(when_stopped, file=sys.stderr)
        return stopped.status
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except (BadInput, OSError, ModuleNotFoundError) as error:
        if isinstance(error, BrokenPipeError) and (left or _stdout_was_left()):
            return _NOT_READ
        message = message_of(error)
        if message is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        return 2


def _flush_stdout() -> bool:
    """Flush stdout; False if its reader has gone, as `head` does when it has enough."""
    try:
        if sys.stdout is not None:  # None: the process was started without one
            sys.stdout.flush()
    except BrokenPipeError:
        if not _stdout_was_left():
            raise
        return False
    return True


def _stdout_was_left() -> bool:
    """Whether the reader of stdout has gone.

    Then it goes nowhere from now on, as Python would complain at its exit.
    """
    try:
        stdout = sys.stdout.fileno()
    except (OSError, AttributeError):  # a stream in memory, or none
        return False
    poll = select.poll()
    poll.register(stdout, 0)
    if not poll.poll(0):  # an error or a hang-up is told unasked
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)
    return True


def message_of(error: BaseException) -> str | None:
    """The message for an error that the user can solve; None for a defect of the program."""
    if isinstance(error, BadInput):
        return str(error)
    if isinstance(error, OSError) and (error.errno in _DISK_ERRORS or _is_unwritten(error)):
        return f"{error}; make room or check the rights, and try again"
    if isinstance(error, shutil.Error):  # copies of several files, each with what went wrong
        copies = error.args[0]
        why = copies if isinstance(copies, str) else copies[0][2]
        return f"{why}; make room or check the rights, and try again"
    if isinstance(error, OSError) and error.errno in _PATH_ERRORS:
        return f"{error}; check the path, or give another"
    if isinstance(error, OSError) and error.errno in _PIPE_ERRORS:
        return (
            f"{error}: nobody reads what is written; give a file, or see what became of the reader"
        )
    if isinstance(error, ModuleNotFoundError):
        return _message_of_missing(error)
    return None


def _is_unwritten(error: OSError) -> bool:
    """Whether an array was not written completely, which NumPy reports without an error number."""
    return error.errno is None and any(words in str(error) for words in _UNWRITTEN)


def _message_of_missing(error: ModuleNotFoundError) -> str | None:
    """The message for a third-party package that is not installed; None for a module of ours."""
    if error.name is None:  # as jax says it of jaxlib
        return f"{error}; {_INSTALL}"
    package = error.name.partition(".")[0]
    if package in _OURS:
        return None
    extra = _EXTRAS.get(package)
    install = f"install it with: pip install 'coder-jax[{extra}]'" if extra else _INSTALL
    return f"the Python package {package} is not installed for {sys.executable}; {install}"


# -------------------------------------------------------------------------------------------------
# The memory of this process.


def peak_memory() -> float:
    """Peak resident memory of this process so far, in GB."""
    status = Path("/proc/self/status")
    if status.exists():  # of this program alone; ru_maxrss can be that of the one that started it
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e9
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
