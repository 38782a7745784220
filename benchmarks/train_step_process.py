"""A process in which a system takes train steps on request.

Alone in its process a system has its own threads, its own memory to be measured, and nothing of the
other libraries in its way. The process waits, idle, while it is another system's turn.
"""

import functools
import multiprocessing
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np

from benchmarks.process import huge_pages
from benchmarks.rounds import turns
from benchmarks.train_step_work import Work
from data_pipeline.process import BadInput, peak_memory

NAMES = ("ours", "recipe", "tuned")


class MeasuredSystem(Protocol):
    """An implementation of the train step, with its state."""

    def prepare(self, step: int, terms: Any) -> Any:
        """The batch in the form of `step`, on the device; not timed, as a loader does this
        ahead.
        """

    def step(self, batch: Any) -> Any:
        """Starts an optimizer step without waiting for it; returns the loss, which `float`
        accepts.
        """

    def wait(self) -> None:
        """Waits until all steps have finished."""

    def peak_device_memory(self) -> int | None:
        """Bytes at most in use on an accelerator; None on a CPU."""


class Task(Protocol):
    """The task of the systems; plain values, which are sent to their processes."""

    @property
    def steps(self) -> int:
        """The number of different batches, which are repeated."""

    def stored(self, step: int) -> Any:
        """The terms of a step, as `MeasuredSystem.prepare` takes them."""


Make = Callable[[str, Any], MeasuredSystem]  # a function of a module, as it travels to processes


def _make_system(name: str, work: Work) -> MeasuredSystem:
    """The system of a name; only its own libraries are imported."""
    if name == "ours":
        from coder_jax.devices.xla_settings import set_up_xla

        set_up_xla()  # as `python -m coder_jax` does
        from benchmarks.our_step import Ours

        return Ours(work)
    if name == "recipe":
        from benchmarks.torch_peers.recipe import Recipe

        return Recipe(work)
    from benchmarks.torch_peers.tuned import Tuned

    return Tuned(work)


def _serve(name: str, work: Task, pipe: Connection, make: Make) -> None:
    """The loop of the process: each number read is a number of steps to take; 0 ends it."""
    try:
        started = time.perf_counter()
        system = make(name, work)
        batches = [system.prepare(step, work.stored(step)) for step in range(work.steps)]
        # The first round over all batches compiles every shape and reports their losses.
        losses = [float(system.step(batch)) for batch in batches]
        system.wait()
        pipe.send({"losses": losses, "start_s": time.perf_counter() - started})
        taken, busy = 0, 0.0
        while count := pipe.recv():
            started, busy_before = time.perf_counter(), time.process_time()
            for number in range(taken, taken + count):
                loss = system.step(batches[number % len(batches)])
            last = float(loss)
            system.wait()
            seconds = time.perf_counter() - started
            busy += time.process_time() - busy_before
            taken += count
            pipe.send({"step_s": seconds / count, "loss": last})
        pipe.send(
            {
                "peak_memory": round(peak_memory() * 1e9),
                "peak_device": system.peak_device_memory(),
                "processor_s": busy / max(taken, 1),
            }
        )
    except BaseException:
        traceback.print_exc()
        raise SystemExit(1) from None


class SystemProcess:
    """The process of a system, seen from its parent; its memory is in huge pages.

    Args:
        name: of the system.
        work: what it is to do.
        make: gives the system of this name for this work.
    """

    def __init__(self, name: str, work: Task, make: Make = _make_system):
        self.name = name
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        # Otherwise jax would reserve most of a GPU's memory, that of others included.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        self.process = context.Process(target=_serve, args=(name, work, theirs, make), daemon=True)
        with huge_pages():
            self.process.start()
        theirs.close()

    @functools.cached_property
    def _begun(self) -> dict[str, Any]:
        return self.answer()

    @property
    def losses(self) -> list[float]:
        """Those of the first step on each batch; waits for them. Processes that were made before
        anything is asked of them start side by side.
        """
        return self._begun["losses"]

    @property
    def start_s(self) -> float:
        """Seconds until those steps were done, imports and compilation included; waits for it."""
        return self._begun["start_s"]

    def answer(self) -> dict[str, Any]:
        """The next answer of the process.

        Raises:
            BadInput: if it has ended instead.
        """
        try:
            return self.pipe.recv()
        except EOFError:
            self.process.join()
            raise BadInput(
                f"the process of {self.name} ended with status {self.process.exitcode}; what it "
                "said stands above (-9: the system's memory was not enough); leave it out with "
                "--systems, or make the work smaller (--help)"
            ) from None

    def take(self, steps: int) -> float:
        """Takes this many steps; returns the mean seconds of a step."""
        self.pipe.send(steps)
        return self.answer()["step_s"]

    def close(self) -> dict[str, Any]:
        """Ends the process; `peak_memory` and `peak_device`, in bytes, and `processor_s`.

        The last are the seconds that all threads together spent on processors, a step: what a busy
        machine changes least.
        """
        self.pipe.send(0)
        found = self.answer()
        self.process.join()
        return found


def loss_difference(losses: dict[str, list[float]]) -> float:
    """The largest relative difference of any system's loss to that of the first system."""
    all_losses = np.array(list(losses.values()))
    return float(np.max(np.abs(all_losses / all_losses[0] - 1)))


def time_steps(
    processes: list[SystemProcess], rounds: int, steps: dict[str, int]
) -> dict[str, dict[str, Any]]:
    """The seconds of a step in each round, and the memory, of each system; ends the processes.

    Args:
        processes: of the systems, which take turns.
        rounds: how often each is timed.
        steps: of each system in a round, by its name.
    """
    times: dict[str, list[float]] = {process.name: [] for process in processes}
    start_s = [process.start_s for process in processes]  # all have compiled before one is timed
    for number, order in enumerate(turns(processes, rounds)):
        for process in order:
            times[process.name].append(process.take(steps[process.name]))
        print(
            f"round {number + 1}: "
            + ", ".join(f"{name} {taken[-1]:.3f} s" for name, taken in times.items()),
            file=sys.stderr,
        )
    return {
        process.name: {
            "step_s": statistics.median(times[process.name]),
            "rounds_s": times[process.name],
            "start_s": started,
            **process.close(),
        }
        for process, started in zip(processes, start_s, strict=True)
    }
