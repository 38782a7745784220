"""What every command does around its work: messages without a traceback, signals, exit status."""

import argparse
import errno
import os
import select
import shutil
import sys
from collections.abc import Callable, Sequence

from data_pipeline.process.errors import BadInput
from data_pipeline.process.progress import QUIET, quiet, without_other_bars
from data_pipeline.process.stopping import INTERRUPTED, Stopped, stop_when_asked
from data_pipeline.process.suggestions import check_flags

# A disk that is full or may not be written to is the user's to mend: no traceback.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)
# NumPy says in words alone that it could not write all of an array.
UNWRITTEN = ("Not enough free space to write", "requested and")
# So is a path that cannot be: a file where a folder must be or the reverse, too long, in a circle.
PATH_ERRORS = (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP)
# Pipes and terminals at whose other end nobody is.
PIPE_ERRORS = (errno.EPIPE, errno.ENXIO)
INSTALL = (
    "use the environment that `bash launch/train.sh` makes (source .venv/bin/activate), or install "
    "what is needed: pip install -r requirements.txt -c constraints.txt"
)
# What a shell tells of a process that nobody read from any more (128 + SIGPIPE).
NOT_READ = 141
OURS = ("coder_jax", "data_pipeline", "launch", "benchmarks")


def run_command(
    work: Callable[[], int],
    *,
    when_asked: str | None = "stopping; the same command goes on",
    when_stopped: str = "stopped; the same command goes on",
) -> int:
    """The exit status of `work()`: its own; 2 for bad input; 75 or 130 if it was asked to stop.

    If the reader of its output, such as `head`, goes before the end, 141.

    Args:
        work: the command; long work polls `data_pipeline.process.stopping`.
        when_asked: what is said once SIGTERM or Ctrl-C has come; None for short work that does not
            poll, which they end at once.
        when_stopped: what is said at the end if it was asked to stop.
    """
    left = False
    try:
        with stop_when_asked(when_asked):
            try:
                status = work()
            finally:
                left = not flush_stdout()
        return NOT_READ if left else status
    except Stopped as stopped:
        print(when_stopped, file=sys.stderr)
        return stopped.status
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except (BadInput, OSError, ModuleNotFoundError) as error:
        if isinstance(error, BrokenPipeError) and (left or stdout_was_left()):
            return NOT_READ
        message = message_of(error)
        if message is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        return 2


def run_parsed(
    name: str,
    description: str | None,
    examples: str,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    work: Callable[[argparse.Namespace], int],
    arguments: Sequence[str] | None = None,
    *,
    when_asked: str = "stopping; the same command starts over",
    when_stopped: str = "stopped; the same command starts over",
) -> int:
    """The exit status of a command with options of its own, as of `run_command`.

    It takes --quiet, too.

    Args:
        name: as it is typed, "python -m data_pipeline.build".
        description, examples: what --help says above and below the options.
        add_arguments: declares the options.
        work: the command, of the options but --quiet.
        arguments: the words behind the name; None: those that were typed.
        when_asked, when_stopped: of `run_command`.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    without_other_bars(words)

    def parse_and_work() -> int:
        parser = argparse.ArgumentParser(
            prog=name,
            description=description,
            epilog=examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_arguments(parser)
        parser.add_argument("--quiet", action="store_true", help=QUIET)
        check_flags(parser, words)
        options = parser.parse_args(words)
        with quiet(vars(options).pop("quiet")):
            return work(options)

    return run_command(parse_and_work, when_asked=when_asked, when_stopped=when_stopped)


def flush_stdout() -> bool:
    """Write what was printed; False if its reader has gone, as `head` does that had enough."""
    try:
        if sys.stdout is not None:  # None: the process was started without one
            sys.stdout.flush()
    except BrokenPipeError:
        if not stdout_was_left():
            raise
        return False
    return True


def stdout_was_left() -> bool:
    """Whether the reader of what is printed has gone.

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
    """What is printed of an error that the user can mend; None for a defect of the program."""
    if isinstance(error, BadInput):
        return str(error)
    if isinstance(error, OSError) and (error.errno in DISK_ERRORS or is_unwritten(error)):
        return f"{error}; make room or check the rights, and try again"
    if isinstance(error, shutil.Error):  # copies of several files, each with what went wrong
        copies = error.args[0]
        why = copies if isinstance(copies, str) else copies[0][2]
        return f"{why}; make room or check the rights, and try again"
    if isinstance(error, OSError) and error.errno in PATH_ERRORS:
        return f"{error}; check the path, or give another"
    if isinstance(error, OSError) and error.errno in PIPE_ERRORS:
        return (
            f"{error}: nobody reads what is written; give a file, or see what became of the reader"
        )
    if isinstance(error, ModuleNotFoundError):
        return message_of_missing(error)
    return None


def is_unwritten(error: OSError) -> bool:
    """Whether an array could not be written whole, of which NumPy tells without a number."""
    return error.errno is None and any(words in str(error) for words in UNWRITTEN)


def message_of_missing(error: ModuleNotFoundError) -> str | None:
    """What is printed where a package of others is not installed; None for a module of ours."""
    if error.name is None:  # as jax says it of jaxlib
        return f"{error}; {INSTALL}"
    package = error.name.partition(".")[0]
    if package in OURS:
        return None
    return f"the Python package {package} is not installed for {sys.executable}; {INSTALL}"
