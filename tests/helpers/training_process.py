"""Training as processes of their own, which tests kill: a tiny model on a tiny dataset."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
from tiny_bert import write_model
from tiny_run import write_tiny_dataset

from coder_jax.training.checkpoints import _read_item, saved_steps

BATCH = ["--groups", "2", "--triplets", "4", "--repeats", "2", "--row-length", "64"]


def make_data(folder: Path) -> None:
    """A tiny BERT in `folder`/bert, and a dataset in `folder`/data."""
    write_model(folder / "bert")
    write_tiny_dataset(folder / "data", folder / "bert")


# How long a host may be silent before the others give it up.
LOST_HOST_SECONDS = 20


class TrainingProcess:
    """`python -m coder_jax train` on the dataset in a folder.

    Args:
        folder: what `make_data` filled; compiled programs are kept there too.
        out: the run folder.
        steps: of the run.
        flags: further flags of the command.
        before: Python that the process runs first, to break something in it.
        host: (coordinator, processes, index) where it is one of several.
        through: a command that gets the command as its last words and runs it.
    """

    def __init__(
        self,
        folder: Path,
        out: Path,
        steps: int,
        *flags: str,
        before: str = "",
        host: tuple[str, int, int] | None = None,
        through: Sequence[str] = (),
    ):
        self.out, self.folder = out, out / "checkpoints"
        self.left_by_others = self._saves_under_way()
        self.restored = newest(out)
        command = ["train", "--recipe", "coder_eng", "--data", folder / "data", "--out", out]
        run = ["--init", folder / "bert", "--steps", steps, "--warmup-steps", "2", *BATCH]
        rest = ["--eval-steps", "0", "--log-steps", "1", *flags]
        words = [str(word) for word in (*command, *run, *rest)]
        code = f"from coder_jax.__main__ import main; sys.exit(main({words!r}))"
        # A restart takes seconds rather than the time to compile. A killed process may leave half a
        # program, so others' tests do not share them.
        cache = {
            "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        coordinator, processes, index = host or ("", "", "")
        place = {
            "JAX_COORDINATOR_ADDRESS": coordinator,
            "JAX_NUM_PROCESSES": str(processes),
            "JAX_PROCESS_ID": str(index),
            "JAX_NUM_CPU_DEVICES": "1",
            "CODER_JAX_LOST_HOST_TIMEOUT": str(LOST_HOST_SECONDS),
        }
        self.log = out.with_name(f"{out.name}-{len(list(out.parent.glob('*.log')))}.log")
        with self.log.open("x", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [*through, sys.executable, "-c", f"import sys\n{before}\n{code}"],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | cache | place,
                cwd=Path(__file__).parents[2],
            )
        self.began = time.monotonic()
        self.first_save: float | None = None  # its age then, if `ended` saw it

    def said(self) -> str:
        """What the process has printed."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def end(self, timeout: float = 600) -> int:
        """Wait for its end; the exit status."""
        try:
            return self.process.wait(timeout)
        finally:
            self.process.kill()
            self.process.wait()

    def ended(self, seconds: float) -> bool:
        """Whether it ends by itself before it is `seconds` old."""
        while self.age < seconds:
            if self.process.poll() is not None:
                return True
            if self.first_save is None and newest(self.out) > self.restored:
                self.first_save = self.age
            time.sleep(0.01)
        return False

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self.began

    def until(self, happens, timeout: float = 300) -> None:
        """Wait until `happens()`."""
        end = time.monotonic() + timeout
        while not happens():
            assert self.process.poll() is None, f"it ended by itself:\n{self.said()}"
            assert time.monotonic() < end, f"nothing happened in {timeout} s:\n{self.said()}"
            time.sleep(0.001)

    def kill(self) -> str:
        """kill -9; what it was doing, as far as files tell."""
        doing = self.doing()
        self.process.kill()
        self.process.wait()
        # A save that began between the look and the kill has left its folder.
        return "save" if self.saving() else doing

    def kill_in_a_save(self) -> None:
        """kill -9 while it certainly saves: it is held, looked at and, if it has passed, let go."""
        while True:
            self.until(self.saving)
            self.process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            if self.saving():
                break
            self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()

    def doing(self) -> str:
        """start-up (before the log is opened), compile (before its first step), step or save."""
        if self.saving():
            return "save"
        if "train:" not in self.said():
            return "start-up"
        return "step" if last_line(self.out) > self.restored else "compile"

    def saving(self) -> bool:
        """Whether it is writing a checkpoint: its folder has no final name yet."""
        return bool(self._saves_under_way() - self.left_by_others)

    def _saves_under_way(self) -> set[tuple[str, int]]:
        found = set()
        for path in self.folder.glob("*tmp*"):
            try:
                found.add((path.name, path.stat().st_ino))
            except FileNotFoundError:  # it has just got its final name
                continue
        return found


def lines_of(out: Path) -> list[dict]:
    """The whole lines of the run's metrics.jsonl."""
    path = out / "metrics.jsonl"
    if not path.exists():
        return []
    whole = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in whole]


def last_line(out: Path) -> int:
    """The step of the last line of metrics.jsonl; 0 for none."""
    return max((line["step"] for line in lines_of(out)), default=0)


def newest(out: Path) -> int:
    """The newest step that was saved; 0 for none."""
    return max(saved_steps(out), default=0)


# What metrics say of the machine, not of the run.
CHANCE = {"seconds", "time", "terms_per_s", "tokens_per_s", "tflop_per_s", "data_wait"}
CHANCE |= {"step_seconds", "goodput", "compile_s", "peak_memory_gb"}
CHANCE |= {"save_s", "eval_s", "refresh_s"}


def assert_nothing_lost(out, checkpoints=99):
    """The newest checkpoints are whole, and until then every step is in the metrics once."""
    for step in saved_steps(out)[-checkpoints:]:
        for item in ("params", "rest"):
            _read_item(out / "checkpoints" / str(step), item)
    steps = [line["step"] for line in lines_of(out) if "eval" not in line]
    until = newest(out)
    assert [step for step in steps if step <= until] == list(range(1, until + 1))


def assert_same_end(out, straight, steps):
    """State and metrics are bitwise those of the undisturbed run, and no litter is left."""
    assert_nothing_lost(out)
    for item in ("params", "rest"):
        got, want = (_read_item(run / "checkpoints" / str(steps), item) for run in (out, straight))
        jax.tree.map(np.testing.assert_array_equal, got, want)
    lines = [
        [{name: line[name] for name in line.keys() - CHANCE} for line in lines_of(run)]
        for run in (out, straight)
    ]
    assert lines[0] == lines[1]


def finish(folder: Path, out: Path, steps: int, *flags: str) -> TrainingProcess:
    """A process that takes a run to its end."""
    process = TrainingProcess(folder, out, steps, *flags)
    assert process.end(600) == 0, process.said()
    return process
