"""Metrics of a run: scalars in; metrics.jsonl, TensorBoard and the progress bar out."""

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from tqdm import tqdm

from coder_jax.devices.hosts import is_first
from coder_jax.runs.tensorboard import Board
from data_pipeline.files.whole_files import written_whole
from data_pipeline.process.errors import BadInput

# A share of waiting from which on the data, not the devices, sets the pace; said at most so often.
WAITS = 0.5
SECONDS_BETWEEN_WARNINGS = 600.0


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl in order of step; of two of one step the later counts.

    A last line that was cut off by a kill is left out.

    Raises:
        BadInput: if the file cannot be read, or another line is broken.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read ({error})") from error
    found: dict[tuple[int, bool], dict[str, Any]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
            step = int(values["step"])
        except (ValueError, TypeError, KeyError) as error:
            if number == len(lines):  # no newline behind it: cut off
                break
            raise BadInput(
                f"{path}:{number}: found {line[:60]!r}; expected a JSON object with a step; delete "
                "the line, or move the file away: a run goes on without it"
            ) from error
        found[step, "eval" in values] = values
    return sorted(found.values(), key=lambda values: values["step"])


def keep_lines_until(path: Path, step: int) -> float:
    """Drop the lines after `step`: a run that goes on from there writes them again.

    Returns the seconds that the run had taken by then.
    """
    if not path.exists():
        return 0.0
    kept = [values for values in read_metrics(path) if values["step"] <= step]
    with written_whole(path) as unfinished, unfinished.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(values) + "\n" for values in kept)
    return max((values.get("seconds", 0.0) for values in kept), default=0.0)


class Window:
    """The steps between two lines of the log: their mean metrics, their speed, and their health.

    Device values are fetched a step late, so that the devices never wait for Python.

    Args:
        terms: terms in a step.
        schedule: step -> learning rate.
        safe: where the last good state is, for the message about a loss that is not finite.
    """

    def __init__(self, terms: int, schedule: Callable[[int], Any], safe: str):
        self.terms, self.schedule, self.safe = terms, schedule, safe
        self.under_way: tuple[int, dict[str, jax.Array]] | None = None
        self._restart()

    def _restart(self) -> None:
        self.began, self.waited, self.pause = time.monotonic(), 0.0, 0.0
        self.fetched: list[dict[str, float]] = []
        self.fills: list[float] = []

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Time in here is time that the run waits for data."""
        began = time.monotonic()
        yield
        self.waited += time.monotonic() - began

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Time in here does not count as training."""
        began = time.monotonic()
        yield
        self.pause += time.monotonic() - began

    def add(self, step: int, metrics: dict[str, jax.Array], *, fill: float) -> None:
        """Take note of a step that was just begun, and fetch the metrics of the one before."""
        self.check()
        self.under_way = step, metrics
        self.fills.append(fill)

    def check(self) -> None:
        """Fetch what is under way.

        Raises:
            BadInput: if a loss or a gradient is not finite; names the step.
        """
        if self.under_way is None:
            return
        step, arrays = self.under_way
        values = {name: float(value) for name, value in jax.device_get(arrays).items()}
        self.under_way = None
        if not (math.isfinite(values["loss"]) and math.isfinite(values["grad_norm"])):
            raise BadInput(
                f"step {step}: the loss is {values['loss']} and the gradient norm "
                f"{values['grad_norm']} (learning rate {float(self.schedule(step - 1)):.3g}). The "
                f"run stops and saves nothing more; the {self.safe} are good. The same settings "
                "would fail at the same step: begin another run with a lower learning rate or in "
                "float32, from the initial encoder or from an export of the last checkpoint"
            )
        self.fetched.append(values)

    def close(self) -> dict[str, float]:
        """The means over the window; a new one begins."""
        step = self.under_way[0] if self.under_way else 0
        self.check()
        seconds = max(time.monotonic() - self.began - self.pause, 1e-9)
        values = {
            name: float(np.mean([metrics[name] for metrics in self.fetched]))
            for name in self.fetched[0]
        }
        values |= {
            "learning_rate": float(self.schedule(step - 1)),
            "terms_per_s": self.terms * len(self.fetched) / seconds,
            "fill": float(np.mean(self.fills)),
            "data_wait": self.waited / seconds,
        }
        self._restart()
        return values


class MetricsLog:
    """Writes the metrics of a run that goes on from `first_step`; on the first host alone.

    Args:
        out: the run folder.
        first_step: the steps already taken.
        steps: the steps of the whole run.
    """

    def __init__(self, out: Path, first_step: int, steps: int):
        self.first = is_first()
        self.began = time.monotonic()
        self.seconds_before = 0.0
        self.waiting, self.warned = False, -math.inf
        if not self.first:
            return
        path = out / "metrics.jsonl"
        self.seconds_before = keep_lines_until(path, first_step)
        self.lines = path.open("a", encoding="utf-8")
        self.board = Board(out / "tensorboard", first_step)
        self.bar = tqdm(total=steps, initial=first_step, unit="step", desc="train", smoothing=0.1)

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Log values (numbers, or nested dictionaries of them) at a step, with the time."""
        if not self.first:
            return
        values = {**values, "seconds": self.seconds}
        try:
            for name, value in _flatten(values):
                self.board.add_scalar(name, value, step)
            self.lines.write(json.dumps({"step": step, **values}, allow_nan=False) + "\n")
            self.lines.flush()
        except OSError as error:
            raise BadInput(
                f"{self.lines.name} cannot be written to ({error.strerror}). Make room or mend the "
                "disk, and give the same command again: the run goes on from its checkpoints"
            ) from error
        self._warn_of_waiting(values.get("data_wait"))

    def has_scores(self, step: int) -> bool:
        """Whether the evaluation of a step is there already."""
        return self.first and any(
            line["step"] == step and "eval" in line for line in read_metrics(self.lines.name)
        )

    def _warn_of_waiting(self, share: float | None) -> None:
        """Say that the data is slow, from the second line in a row on: pipelines start slowly."""
        if share is None:
            return
        before, self.waiting = self.waiting, share > WAITS
        if not (before and self.waiting) or self.seconds < self.warned + SECONDS_BETWEEN_WARNINGS:
            return
        self.warned = self.seconds
        self.say(
            f"the run waits for its data {share:.0%} of the time: the disk or the input pipeline "
            "is slower than the devices (data_wait in metrics.jsonl)"
        )

    @property
    def seconds(self) -> float:
        """What the run has taken so far, with the processes before this one, without start-up."""
        return self.seconds_before + time.monotonic() - self.began

    def show(self, step: int, values: Mapping[str, float]) -> None:
        """Move the progress bar to a step, with a few values beside it."""
        if not self.first:
            return
        self.bar.set_postfix(
            {name: f"{value:.4g}" for name, value in values.items()}, refresh=False
        )
        self.bar.update(step - self.bar.n)

    def say(self, text: str) -> None:
        """Print a line without breaking the progress bar."""
        if self.first:
            self.bar.write(text)

    def close(self) -> None:
        """Close the files and the bar."""
        if not self.first:
            return
        self.bar.close()
        for file in (self.board, self.lines):
            with contextlib.suppress(OSError):  # a full disk was said when a line was written
                file.close()


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Any:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}/")
        else:
            yield prefix + name, value
