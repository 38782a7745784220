"""Exit status, messages and signals of commands."""

import contextlib
import errno
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import termios

import numpy as np
import pytest
from devices import FULL, device

from data_pipeline import process as progress
from data_pipeline import process as stopping
from data_pipeline.process import (
    BadInput,
    did_you_mean,
    progress_bar,
    quiet,
    run_command,
    tell,
)

WORKER = """
import sys, time
from data_pipeline import process as stopping
from data_pipeline.process import run_command

def work():
    print("ready", flush=True)
    for _ in range(4000):
        time.sleep(0.05)
        if {polls}:
            stopping.poll()
    return 0

sys.exit(run_command(work, when_asked={when_asked!r}))
"""


def raising(error: BaseException):
    def work() -> int:
        raise error

    return work


def test_the_status_of_the_work_is_the_status_of_the_command():
    assert run_command(lambda: 0) == 0
    assert run_command(lambda: 3) == 3


def test_bad_input_is_a_message_and_status_2(capsys):
    assert run_command(raising(BadInput("found x; expected y"))) == 2
    assert capsys.readouterr().err == "error: found x; expected y\n"


def test_a_full_disk_is_a_message_and_any_other_os_error_a_traceback(capsys):
    assert run_command(raising(OSError(28, "No space left on device"))) == 2
    assert "No space left" in capsys.readouterr().err
    with pytest.raises(OSError, match="odd"):
        run_command(raising(OSError(5, "odd")))


@pytest.mark.parametrize(
    "words", ["{} requested and 0 written", "Not enough free space to write 8"]
)
def test_arrays_that_a_full_disk_does_not_take_are_a_message(tmp_path, capsys, words):
    """NumPy's errors have no number; small arrays on a full device, and what it says of large."""

    def work() -> int:
        if "{}" not in words:  # as numpy's multiarray/convert.c says it where no file may grow
            raise OSError(words)
        np.ones(100_000).tofile(device(tmp_path / "full", FULL))
        return 0

    assert run_command(work) == 2
    assert f"error: {words.format(100_000)}; make room" in capsys.readouterr().err


def test_a_path_that_cannot_be_is_a_message(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert run_command(lambda: (tmp_path / "file" / "folder").mkdir() or 0) == 2
    expected = f"Not a directory: '{tmp_path}/file/folder'; check the path, or give another"
    assert expected in capsys.readouterr().err


def test_copies_that_fail_are_a_message(tmp_path, capsys):
    (tmp_path / "from").mkdir()
    (tmp_path / "to").mkdir()
    (tmp_path / "from/file").write_text("text")
    (tmp_path / "to/file").symlink_to(device(tmp_path / "full", FULL))

    def work() -> int:
        shutil.copytree(tmp_path / "from", tmp_path / "to", dirs_exist_ok=True)
        return 0

    assert run_command(work) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: [Errno 28] No space left on device") and "make room" in error


def start(polls: bool, when_asked: str | None) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER.format(polls=polls, when_asked=when_asked)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, stopping.TRY_AGAIN), (signal.SIGINT, 130)]
)
def test_a_signal_stops_work_that_polls_with_a_status_of_its_own(number, status):
    process = start(True, "stopping soon")
    os.kill(process.pid, number)
    _, err = process.communicate(timeout=180)
    assert process.returncode == status
    assert "stopping soon" in err
    assert "the same command goes on" in err


def test_a_second_signal_does_not_wait_but_one_that_comes_at_once_is_none():
    process = start(False, "stopping soon")
    os.kill(process.pid, signal.SIGINT)
    assert process.stderr is not None
    while "stopping soon" not in process.stderr.readline():
        pass
    os.kill(process.pid, signal.SIGTERM)  # of the command that started it, which got Ctrl-C, too
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(stopping._SAME_REQUEST_SECONDS)
    os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=180)
    assert process.returncode == 130


def test_work_that_does_not_poll_ends_at_once():
    process = start(False, None)
    os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=180)
    assert process.returncode == -signal.SIGTERM


def test_a_signal_to_another_host_is_not_the_first_of_two(capsys):
    def work() -> int:
        stopping.ask(signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        stopping.poll()
        return 0

    assert run_command(work, when_asked="stopping soon") == stopping.TRY_AGAIN
    assert capsys.readouterr().err.count("SIGTERM: stopping soon") == 1


def test_at_the_end_it_says_what_the_command_knows_of_a_new_start(capsys):
    assert run_command(raising(stopping.Stopped()), when_stopped="starts over") == 75
    assert capsys.readouterr().err == "starts over\n"


def test_the_handlers_are_given_back_and_the_next_command_starts_unasked():
    before = signal.getsignal(signal.SIGTERM)

    def work() -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        stopping.poll()
        return 0

    assert run_command(work) == stopping.TRY_AGAIN
    assert signal.getsignal(signal.SIGTERM) == before
    assert run_command(lambda: int(stopping.asked())) == 0


def piped_into_head(code: str) -> tuple[int, str, str]:
    """(status, first line of its output, stderr) of a program that `head -1` reads."""
    program = f"import sys\nfrom data_pipeline.process import run_command\n{code}"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": ""},
    ) as process:
        assert process.stdout and process.stderr
        line = process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
        return process.wait(60), line, said


def test_a_reader_that_goes_ends_printing_without_a_word():
    """`head -1` takes a line of many: what is still to be printed ends the work."""
    code = (
        "sys.exit(run_command(lambda: [print('x' * 99, flush=True) for _ in range(10**6)] and 0))"
    )
    assert piped_into_head(code) == (141, "x" * 99 + "\n", "")


def test_a_reader_that_goes_after_the_work_was_done_changes_no_status():
    code = (
        "import select\n"
        "def work():\n"
        "    print('first', flush=True)\n"
        "    gone = select.poll(); gone.register(1, 0); gone.poll()\n"  # until its reader has gone
        "    print('second'); raise SystemExit(0)\n"
        "run_command(work)"
    )
    assert piped_into_head(code) == (0, "first\n", "")


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENXIO])
def test_a_pipe_that_nobody_reads_is_said(number, capsys):
    assert run_command(raising(OSError(number, "no reader"))) == 2
    assert "nobody reads what is written; give a file" in capsys.readouterr().err


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_process_without_stdout_or_stderr(repo, closed):
    words = f"{shlex.quote(sys.executable)} -m coder_jax --help {closed}"
    done = subprocess.run(words, shell=True, cwd=repo, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "Traceback" not in done.stderr


def test_a_package_that_is_missing_without_a_name(capsys):
    """As jax says it of jaxlib."""
    assert run_command(raising(ModuleNotFoundError("jax requires jaxlib"))) == 2
    assert "jax requires jaxlib; use the environment that" in capsys.readouterr().err


def test_a_missing_package_is_named_and_a_missing_module_of_ours_a_traceback(capsys):
    assert run_command(raising(ModuleNotFoundError("no", name="polars.io"))) == 2
    said = capsys.readouterr().err
    assert "package polars is not installed" in said and "requirements.txt" in said
    with pytest.raises(ModuleNotFoundError):
        run_command(raising(ModuleNotFoundError("no", name="coder_jax.gone")))


# -------------------------------------------------------------------------------------------------
# Progress: a bar on a terminal, plain lines elsewhere, nothing if quiet.

LINE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d "


@pytest.fixture
def every_update(monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)


def test_a_log_file_gets_lines_with_the_time_of_day(every_update, capsys):
    with progress_bar(total=4, desc="encoding", unit=" terms", initial=1) as bar:
        bar.set_postfix({"loss": "0.5"}, refresh=False)
        bar.update(1)
        bar.update(2)
    printed = capsys.readouterr().err
    assert "\r" not in printed and "\x1b" not in printed and "█" not in printed
    lines = printed.splitlines()
    assert re.fullmatch(LINE + r"encoding: 2/4, 50%, .* terms/s, \S+ left, loss=0.5", lines[0])
    assert re.fullmatch(LINE + r"encoding: 4/4, 100%, .* 00:00 in all, loss=0.5", lines[-1])
    assert len(lines) == 3


def test_between_two_lines_is_half_a_minute(monkeypatch, capsys):
    clock = [0.0]
    with progress_bar(total=100, desc="train", unit="step") as bar:
        bar._time = lambda: clock[0]
        bar.start_t = bar.last_print_t = 0.0
        for _ in range(100):
            clock[0] += 1.0
            bar.update()
        shown = re.findall(r"train: (\d+)/100", capsys.readouterr().err)
    assert shown == ["30", "60", "90"]
    assert "100/100" in capsys.readouterr().err


@pytest.mark.parametrize(("unit", "rate"), [("step", "4.00s/step"), (" terms", "0.25 terms/s")])
def test_a_slow_rate_reads_well(unit, rate, capsys):
    clock = [0.0]
    with progress_bar(total=1, desc="slow", unit=unit) as bar:
        bar._time = lambda: clock[0]
        bar.start_t = bar.last_print_t = 0.0
        clock[0] = 4.0
        bar.update()
    assert re.fullmatch(
        LINE + f"slow: 1/1, 100%, {rate}, 00:04 in all", capsys.readouterr().err.strip()
    )


def test_what_would_vanish_leaves_no_last_line(capsys):
    with progress_bar(total=2, desc="check", unit="B", leave=False) as bar:
        bar.update(2)
    assert list(progress_bar(range(3), desc="write", disable=True)) == [0, 1, 2]
    assert capsys.readouterr().err == ""


def test_an_unknown_total_and_other_lines(every_update, capsys):
    numbers = progress_bar(iter("ab"), desc="rows", unit="row")
    for _ in numbers:
        numbers.write("a word")
    printed = capsys.readouterr()
    assert printed.out == "a word\na word\n"
    assert re.search(LINE + r"rows: 2, .* in all$", printed.err.splitlines()[-1])


def test_quiet_says_only_warnings_and_ends(every_update, capsys):
    with quiet():
        with progress_bar(total=2) as bar:
            bar.update()
        tell("a word")
        tell("warning: odd")
        with quiet(False):
            tell("heard")
    tell("heard again")
    assert capsys.readouterr() == ("", "warning: odd\nheard\nheard again\n")


def test_a_terminal_gets_a_bar():
    """In a process whose stderr is a terminal."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    code = (
        "from data_pipeline.process import progress_bar\n"
        "with progress_bar(total=2, desc='encoding') as bar: bar.update(2)"
    )
    subprocess.run([sys.executable, "-c", code], stderr=theirs, check=True)
    os.close(theirs)
    shown = ""
    with contextlib.suppress(OSError):  # at its end
        while text := os.read(ours, 10_000):
            shown += text.decode()
    os.close(ours)
    assert "\r" in shown and "2/2 [" in shown


# -------------------------------------------------------------------------------------------------
# What a mistyped name may have meant.


def test_the_nearest_name_is_offered_if_any_is_near():
    names = ["coder_eng", "coder_all", "small"]
    assert did_you_mean("smal", names) == "; did you mean small?"
    assert did_you_mean("CODER_ENG", names) == "; did you mean coder_eng?"
    assert did_you_mean("dance", names) == ""
