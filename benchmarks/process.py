"""Separate processes for measurements, so that each has its own peak of memory."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

from data_pipeline.process import BadInput

_PIECE = 16 << 20  # bytes read at once
_TUNABLES = "GLIBC_TUNABLES"


class Child:
    """A measured process; its lines on stderr are printed and stored.

    Args:
        command: what to run; standard output is ours to read, line by line, through `ask`.
    """

    def __init__(self, command: list[str]):
        self.command = command
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        # A daemon thread: this process may end before the child, which then finds its input closed.
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            print(line, end="", file=sys.stderr, flush=True)

    def answer(self) -> Any:
        """The next JSON line on its standard output."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.finish()
            raise BadInput(f"{' '.join(self.command)} ended without an answer; see above")
        return json.loads(line)

    def ask(self, question: str) -> Any:
        """Writes one line to its standard input and returns its answer."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended; `answer` says so
            self.process.stdin.write(question + "\n")
            self.process.stdin.flush()
        return self.answer()

    def finish(self) -> "Ended":
        """Closes its input and waits for its end; raises BadInput if it failed."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        for line in self.process.stdout:
            print(line, end="", file=sys.stderr, flush=True)
        _, status, usage = os.wait4(self.process.pid, 0)
        seconds = time.monotonic() - self.started
        # Set, so that it is not waited for again.
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self._listener.join()
        self.process.stdout.close()
        assert self.process.stderr is not None
        self.process.stderr.close()
        if self.process.returncode:
            raise BadInput(
                f"{' '.join(self.command)} ended with status {self.process.returncode}; see above"
            )
        unit = 1 if sys.platform == "darwin" else 1024
        return Ended(
            seconds=seconds,
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            peak_gb=usage.ru_maxrss * unit / 1e9,
            said="".join(self.said),
        )


@dataclass(frozen=True)
class Ended:
    """Measurements of a process: seconds, CPU seconds, peak memory, its stderr."""

    seconds: float
    cpu_seconds: float
    peak_gb: float
    said: str


def run_child(command: list[str]) -> Ended:
    """Runs a command to its end."""
    return Child(command).finish()


def in_a_process(call: Callable[..., Any], *arguments: Any) -> Any:
    """The result of `call`, run in a process that then ends and frees its memory.

    If this process is killed, that one ends at once: left alone it would work on, and slow down
    whatever is measured next.

    Raises:
        BadInput: if the process was killed.
    """
    try:
        with ProcessPoolExecutor(1, get_context("spawn"), initializer=_end_with_parent) as pool:
            return pool.submit(call, *arguments).result()
    except BrokenProcessPool:
        raise BadInput(
            "a process was killed; most often the system's memory was not enough: make the work "
            "smaller"
        ) from None


def _end_with_parent() -> None:
    """Makes this process end, even in the middle of work, when its parent ends."""
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextlib.contextmanager
def huge_pages() -> Iterator[None]:
    """In the block, processes that start use huge pages (glibc), as `launch/train.sh` does."""
    before = os.environ.pop(_TUNABLES, None)
    try:
        os.environ[_TUNABLES] = "glibc.malloc.hugetlb=1"
        yield
    finally:
        os.environ.pop(_TUNABLES, None)
        if before is not None:
            os.environ[_TUNABLES] = before


def forget(folder: Path) -> None:
    """Drops the folder's files from the page cache, so that they are read from disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            _drop(path)


def _drop(path: Path) -> None:
    if not hasattr(os, "posix_fadvise"):
        return
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_bandwidth(files: list[Path]) -> float:
    """Bytes per second of reading files from the disk, once, in large pieces."""
    for path in files:
        _drop(path)
    started, size = time.perf_counter(), 0
    for path in files:
        with open(path, "rb", buffering=0) as file:
            while piece := file.read(_PIECE):
                size += len(piece)
    return size / (time.perf_counter() - started)


def copy_bandwidth_apart() -> float:
    """`limits._copy_bandwidth` in a separate process, as it imports jax and torch."""
    code = "from benchmarks.limits import _copy_bandwidth; print(_copy_bandwidth())"
    child = Child([sys.executable, "-c", code])
    found = child.answer()
    child.finish()
    return found


def available_memory() -> int:
    """Bytes that new processes may have now, without any being paged out."""
    known = Path("/proc/meminfo")
    if known.exists():
        for line in known.read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def tree_memory() -> float:
    """Memory of this process and its children now, in GB; shared pages count once.

    0 where the system does not say.
    """
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    if not children.exists():
        return 0.0
    total = 0
    for process in ("self", *children.read_text(encoding="utf-8").split()):
        text = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8")
        total += next(int(line.split()[1]) for line in text.splitlines() if line[:4] == "Pss:")
    return total * 1024 / 1e9
