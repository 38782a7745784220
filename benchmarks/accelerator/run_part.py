"""Runs a part as a process, with a time limit and a log, and finds the reason of a failure."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from benchmarks.accelerator.parts import MeasuredPart
from data_pipeline.process import poll

_LOOK = 0.2  # seconds between two looks at a process
_GRACE = 3.0  # seconds from SIGTERM to SIGKILL
_LONGEST_REASON = 400
# The first pattern that matches a line is the most informative; of several lines the last.
_REASONS = (
    re.compile(r"(Unknown flags? in XLA_FLAGS: .*)"),
    re.compile(r"(the Python package \S+ is not installed)"),
    re.compile(r"^error: (.*)"),
    re.compile(r"(RESOURCE_EXHAUSTED: .*)"),
    re.compile(r"(.*out of memory.*)", re.IGNORECASE),
    re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b.*)"),
    re.compile(r"(.*\S.*)"),
)


class EndedPart(NamedTuple):
    """A finished process: its seconds, and why it gave no result (None if it did)."""

    seconds: float
    missing: str | None


def limit_of(part: MeasuredPart, later: Sequence[MeasuredPart], left: float) -> float:
    """The time limit of a part, in seconds.

    As long as `most` if what it leaves is what later parts are expected to need, else as long as it
    is expected to take: the first parts say most, and half the time of one gives nothing. Spare
    parts get what later parts are not expected to need.

    Args:
        part: the one.
        later: those after it.
        left: seconds of the whole that are left.
    """
    reserved = sum(one.expected for one in later if not one.spare)
    least = 0.0 if part.spare else min(left, part.expected)
    return min(part.most, max(left - reserved, least))


def run_part(part: MeasuredPart, json: Path, limit: float, log: Path) -> EndedPart:
    """Runs a part to its end or its time limit; appends its output to the log.

    Args:
        part: what to run.
        json: where it writes its rows.
        limit: seconds; then it is ended with all its children.
        log: a file.

    Raises:
        data_pipeline.process.Stopped: a signal asked this process to stop.
    """
    environment = dict(os.environ)
    # Processes and libraries share the GPU: none may reserve most of its memory at start.
    environment.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    environment["PYTHONUNBUFFERED"] = "1"
    if part.xla_flags:
        flags = environment.get("XLA_FLAGS", "")
        environment["XLA_FLAGS"] = f"{flags} {part.xla_flags}".strip()
    command = [sys.executable, "-P", "-m", f"benchmarks.{part.module}", *part.arguments]
    with open(log, "ab") as file:
        file.write(f"\n=== {part.name}: {part.command}\n".encode())
        file.flush()
        begin = file.tell()
        started = time.monotonic()
        # A session of its own, so that its children can be ended with it.
        process = subprocess.Popen(
            [*command, "--json", str(json)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while process.poll() is None and time.monotonic() - started < limit:
                poll()
                time.sleep(_LOOK)
            in_time = process.poll() is not None
        finally:
            _end_group(process)
    seconds = time.monotonic() - started
    if not in_time:
        return EndedPart(seconds, f"ended after {seconds:.0f} s, which was its time limit")
    if process.returncode or not json.exists():
        said = log.read_bytes()[begin:].decode("utf-8", "replace")
        return EndedPart(seconds, _reason_of(said, process.returncode))
    return EndedPart(seconds, None)


def _end_group(process: subprocess.Popen) -> None:
    """Ends a process and all its children, even if the process itself has ended."""
    until = time.monotonic() + _GRACE
    with suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        while process.poll() is None and time.monotonic() < until:
            time.sleep(_LOOK)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _reason_of(said: str, status: int) -> str:
    """The reason of a failure, in one line, from a process's output."""
    lines = [line.strip() for line in said.splitlines()]
    for pattern in _REASONS:
        found = [match[1] for line in lines if (match := pattern.search(line))]
        if found:
            return f"{found[-1][:_LONGEST_REASON]} (status {status})"
    return f"it ended with status {status} and said nothing"
