"""Progress: a bar on a terminal, plain lines elsewhere, nothing if quiet."""

import contextlib
import os
import pty
import re
import subprocess
import sys
import termios

import pytest

from data_pipeline.process import progress
from data_pipeline.process.progress import progress_bar, quiet, tell

LINE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d "


@pytest.fixture
def every_update(monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)


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


def test_quiet_is_silent_and_ends(every_update, capsys):
    with quiet():
        with progress_bar(total=2) as bar:
            bar.update()
        tell("a word")
        with quiet(False):
            tell("heard")
    tell("heard again")
    assert capsys.readouterr() == ("", "heard\nheard again\n")


def test_a_terminal_gets_a_bar():
    """In a process whose stderr is a terminal."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    code = (
        "from data_pipeline.process.progress import progress_bar\n"
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
