"""What all commands share: messages for bad input, progress, tidy stops on signals, help."""

import argparse
import difflib
import errno
import os
import re
import select
import shutil
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
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
_QUIET = "print only results, warnings and errors; no progress"  # of the flag --quiet

_quiet = [False]


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
        form = f"{self.desc or 'done'}: {shares}, {{rate_fmt}}, {time_in_words}{{postfix}}"
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
def quiet(wanted: bool = True) -> Iterator[None]:
    """In the block, if wanted, print only results, warnings and errors."""
    before, _quiet[0] = _quiet[0], wanted
    try:
        yield
    finally:
        _quiet[0] = before


def _on_terminal() -> bool:
    """Whether stderr is a terminal; it is None in a process started without one."""
    return sys.stderr is not None and sys.stderr.isatty()


def is_quiet() -> bool:
    """Whether --quiet is in effect."""
    return _quiet[0]


def tell(text: object) -> None:
    """Print a line of progress on stderr, unless quiet."""
    if not is_quiet():
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


def check_flags(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Reject flags that a parser does not have, with a suggestion.

    argparse itself names them last, after all that is missing because of them.

    Raises:
        BadInput: for a word that begins with -- and is no flag, nor the beginning of one.
    """
    known = parser._option_string_actions
    for word in words:
        if word == "--":
            return
        flag = word.partition("=")[0]
        if flag.startswith("--") and not any(name.startswith(flag) for name in known):
            raise BadInput(
                f"there is no option {flag}{did_you_mean(flag, known)} "
                f"(`{parser.prog} --help-all` lists all)"
            )


# -------------------------------------------------------------------------------------------------
# Short help: --help shows what a command does, its first examples and its common options, in the
# order in which the command names them; --help-all shows everything.

HELP_FLAGS = ("-h", "--help", "--help-all")
_EXAMPLES_SHOWN = 2
_MOST_COLUMNS = 100
_COMMAND = re.compile(r"^ +(?:python -m|bash|echo) (?:.*\\\n)*.*\n?", re.MULTILINE)
_CLAUSE = re.compile(r"(?<=[^.])[;.] (?![^(]*\))")  # ends what --help shows of an option's help
_DEFAULT = re.compile(r"\(default: [^()]*\)$")


def command_parser(
    name: str,
    description: str | None,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    common: Sequence[str],
    examples: str = "",
) -> argparse.ArgumentParser:
    """A parser with --quiet, a short --help, and --help-all.

    Args:
        name: as it is typed, "python -m data_pipeline.build".
        description: what --help-all shows above the options; --help shows its first paragraph.
        add_arguments: declares the options.
        common: the options that --help shows, each with the first clause of its help.
        examples: what --help-all shows below the options, unless the description has them; --help
            shows the first ones.
    """
    parser = argparse.ArgumentParser(
        prog=name,
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    add_arguments(parser)
    parser.add_argument("--quiet", action="store_true", help=_QUIET)
    parser.add_argument("-h", "--help", action=_ShortHelp, common=common)
    parser.add_argument("--help-all", action="help", help="show all options")
    return parser


class _ShortHelp(argparse.Action):
    """The action of --help: what a command does, examples, and its common options."""

    def __init__(self, option_strings: Sequence[str], dest: str, common: Sequence[str]):
        help_text = "show the options that people need most"
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help_text)
        self.common = common

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        named = {flag: one for one in parser._actions for flag in one.option_strings}
        positional = [one for one in parser._actions if not one.option_strings]
        needed = [_typed(one) for one in named.values() if one.required]
        usage = [parser.prog, *dict.fromkeys(needed), "[options]", *map(_typed, positional)]
        shown = [*positional, *(named[flag] for flag in self.common)]
        rows = [(_typed(one), (one.help or "") % vars(one)) for one in shown]
        about = f"{parser.description or ''}\n\n{parser.epilog or ''}\n"
        count = len({id(one) for one in named.values() if one.dest not in ("help", "help_all")})
        print(_short_help(" ".join(usage), about, rows, count))
        parser.exit()


def _typed(option: argparse.Action) -> str:
    """An option with its value, as a user types it: --model FOLDER."""
    if not option.option_strings:
        name = str(option.metavar or option.dest.upper())
        return f"[{name}]" if option.nargs == "?" else name
    flag = option.option_strings[0]
    if option.nargs == 0:
        return flag
    if isinstance(option.metavar, tuple):
        return " ".join((flag, *option.metavar))
    choices = ",".join(map(str, option.choices)) if option.choices else ""
    value = option.metavar or (f"{{{choices}}}" if choices else option.dest.upper())
    return f"{flag} {value}" + (" ..." if option.nargs == "+" else "")


def _short_help(usage: str, about: str, rows: Iterable[tuple[str, str]], count: int) -> str:
    """The text that --help prints.

    Args:
        usage: the command as it is typed.
        about: a text whose first paragraph says what the command does, with examples in it.
        rows: options, and the whole help of each.
        count: how many options the command has.
    """
    paragraph = about.strip().partition("\n\n")[0]
    examples = [
        textwrap.indent(textwrap.dedent(text), "  ").rstrip()
        for text in _COMMAND.findall(about)[:_EXAMPLES_SHOWN]
    ]
    shown = ["", "Examples:", *examples] if examples else []
    return "\n".join(
        [
            textwrap.fill(f"usage: {usage}", _columns(), subsequent_indent=" " * 9),
            "",
            textwrap.fill(paragraph, _columns()),
            *shown,
            "",
            "Options:",
            option_table((flag, first_clause(text)) for flag, text in rows),
            "",
            f"--help-all shows all {count} options",
        ]
    )


def option_table(rows: Iterable[tuple[str, str]], widest: int = 30) -> str:
    """Options and their help in two columns, the first at most `widest` characters wide."""
    rows = list(rows)
    width = min(widest, max((len(flag) for flag, _ in rows), default=0))
    lines = []
    for flag, text in rows:
        first = f"  {flag:<{width}}  "
        if len(flag) > width:
            lines.append(f"  {flag}")
            first = " " * (width + 4)
        lines.append(
            textwrap.fill(
                text,
                _columns(),
                initial_indent=first,
                subsequent_indent=" " * (width + 4),
                break_on_hyphens=False,
            )
        )
    return "\n".join(lines)


def first_clause(text: str) -> str:
    """An option's help up to its first semicolon or full stop, and its default."""
    words = " ".join(text.split())
    clause = _CLAUSE.split(words, maxsplit=1)[0].removesuffix(".")
    default = _DEFAULT.search(words)
    return f"{clause} {default[0]}" if default and default[0] not in clause else clause


def _columns() -> int:
    """The width of help: that of the terminal, up to a maximum."""
    return min(_MOST_COLUMNS, shutil.get_terminal_size((_MOST_COLUMNS, 24)).columns)


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
    **dict.fromkeys(("tensorflow", "tensorflow_datasets", "absl", "tensorboardX"), "train"),
    "torch": "torch",
    **dict.fromkeys(("gensim", "ahocorasick", "abbreviations", "bm25s", "ot"), "text"),
    **dict.fromkeys(("onnx", "onnxruntime", "onnxscript"), "onnx"),
    **dict.fromkeys(("matplotlib", "threadpoolctl"), "report"),
    **dict.fromkeys(("s3fs", "gcsfs"), "cloud"),
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


def run_parsed(
    name: str,
    description: str | None,
    examples: str,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    work: Callable[[argparse.Namespace], int],
    arguments: Sequence[str] | None = None,
    *,
    common: Sequence[str],
    when_asked: str = "stopping; the same command starts over",
    when_stopped: str = "stopped; the same command starts over",
) -> int:
    """Parse the arguments of a command and run it; returns the exit status, as `run_command` does.

    It takes --quiet, too.

    Args:
        name: as it is typed, "python -m data_pipeline.build".
        description, examples: what --help-all says above and below the options.
        add_arguments: declares the options.
        work: the command, of the options but --quiet.
        arguments: the words behind the name; None: those that were typed.
        common: the options that --help shows.
        when_asked, when_stopped: of `run_command`.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    without_other_bars(words)

    def parse_and_work() -> int:
        parser = command_parser(name, description, add_arguments, common, examples)
        check_flags(parser, words)
        options = parser.parse_args(words)
        with quiet(vars(options).pop("quiet")):
            return work(options)

    return run_command(parse_and_work, when_asked=when_asked, when_stopped=when_stopped)


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
