"""The steps between two lines of the log: their mean metrics, their speed and their health."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from data_pipeline.process.errors import BadInput


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
                "float32, from the initial encoder or from this run (--from)"
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
