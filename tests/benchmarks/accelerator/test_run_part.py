"""A part as a process: its time, its end, and the line that says why it failed."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

from benchmarks.accelerator import parts, run_part
from benchmarks.accelerator.parts import MeasuredPart

# Stand-ins for benchmarks: `python -P -m benchmarks.NAME ... --json FILE`.
WRITES = """
import json, os, sys
open(sys.argv[-1], "w").write(json.dumps({"rows": [{"flags": os.environ["XLA_FLAGS"]}]}))
"""
FAILS = """
import sys
print("useless", file=sys.stderr)
print("error: no batches; make some", file=sys.stderr)
print("later", file=sys.stderr)
sys.exit(2)
"""
HANGS = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open(sys.argv[1], "w").write(str(child.pid))
time.sleep(60)
"""


def part(name="one", expected=10.0, most=20.0, **more):
    return MeasuredPart(name=name, kind="memory", expected=expected, most=most, **more)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a program as a part: (its text, its limit) -> (what became of it, its JSON, the log)."""
    (tmp_path / "benchmarks").mkdir()
    monkeypatch.setitem(parts.KINDS, "memory", "one")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("XLA_FLAGS", "--of_the_user")

    def run(text, limit=30.0, **more):
        (tmp_path / "benchmarks" / "one.py").write_text(text)
        out, log = tmp_path / "rows.json", tmp_path / "log"
        return run_part.run_part(part(**more), out, limit, log), out, log

    return run


def test_what_it_writes_and_says_is_kept(run):
    ended, out, log = run(WRITES + "print('said')", xla_flags="--of_the_part=1")
    assert ended.missing is None and ended.seconds > 0
    rows = json.loads(out.read_text())["rows"]
    assert rows == [{"flags": "--of_the_user --of_the_part=1"}]
    assert "=== one: XLA_FLAGS=--of_the_part=1 python -m benchmarks.one\nsaid" in log.read_text()


def test_the_reason_is_its_own_message_and_not_that_of_a_part_before(run):
    ended, _, log = run(FAILS)
    assert ended.missing == "no batches; make some (status 2)"
    ended, _, log = run("raise ValueError('of its own')")  # a line that says less than "error:"
    assert ended.missing == "ValueError: of its own (status 1)"
    assert "useless" in log.read_text() and "of its own" in log.read_text()


def test_a_process_that_writes_nothing_gave_nothing(run):
    ended, _, _ = run("pass")
    assert ended.missing == "it ended with status 0 and said nothing"


def is_alive(process):
    """Whether it is there and no zombie."""
    status = Path(f"/proc/{process}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_at_its_limit_it_ends_with_its_children(run, tmp_path):
    known = tmp_path / "child"
    started = time.monotonic()
    ended, _, _ = run(HANGS, limit=2.0, arguments=(str(known),))
    assert ended.missing == "ended after 2 s, which was its time limit"
    assert time.monotonic() - started < 20
    child = int(known.read_text())
    until = time.monotonic() + 10
    while is_alive(child) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_alive(child)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "F1124 03 parse_flags_from_env.cc:234] Unknown flag in XLA_FLAGS: --xla_no=true\n"
            "error: a process was killed; most often the system's memory was not enough",
            "Unknown flag in XLA_FLAGS: --xla_no=true (status 3)",
        ),
        (
            "Traceback\nModuleNotFoundError: No module named 'flax'\n",
            "ModuleNotFoundError: No module named 'flax' (status 3)",
        ),
        (
            "error: the Python package polars is not installed for /usr/bin/python3; use another",
            "the Python package polars is not installed (status 3)",
        ),
        (
            "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory: 9 bytes\n",
            "RESOURCE_EXHAUSTED: Out of memory: 9 bytes (status 3)",
        ),
        ("one\nlast words\n\n", "last words (status 3)"),
        ("error: " + "x" * 999, "x" * 400 + " (status 3)"),
    ],
)
def test_the_reason(said, reason):
    assert run_part._reason_of(said, 3) == reason


def test_a_part_has_all_the_time_that_later_parts_do_not_need():
    first, later = part(expected=10, most=100), [part(expected=30), part(expected=9, spare=True)]
    assert run_part.limit_of(first, later, 200) == 100  # its most
    assert run_part.limit_of(first, later, 60) == 30  # 30 are kept for the later one
    assert run_part.limit_of(first, later, 20) == 10  # the first gets what it needs
    assert run_part.limit_of(later[1], [first], 50) == 20  # a spare part gets what there is
    assert run_part.limit_of(later[1], [first], 15) == 5  # without what a later part needs
    assert run_part.limit_of(later[1], [first], 5) == 0
    assert run_part.limit_of(first, later, -5) <= 0


def test_the_processes_of_parts_run_the_python_that_runs_this(run):
    _, out, _ = run(WRITES.replace('os.environ["XLA_FLAGS"]', "sys.executable"))
    assert os.path.samefile(json.loads(out.read_text())["rows"][0]["flags"], sys.executable)
