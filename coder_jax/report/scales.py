"""Values in, places in a picture out: axes with round ticks, paths of SVG.

Places are shares of the picture's width or height, times 1000.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

UNIT = 1000


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`, with `ticks` (value as text, place) between them."""

    low: float
    high: float
    ticks: list[tuple[str, float]]

    def places(self, values: np.ndarray) -> np.ndarray:
        """The place of each value."""
        return UNIT * (np.asarray(values, np.float64) - self.low) / (self.high - self.low)


def scale_to(low: float, high: float, *, whole: bool = False) -> Scale:
    """The axis from `low` to `high`, with seven ticks at most, at round values.

    Where the two are the same, the axis goes on to a value a little higher.

    Args:
      whole: ticks at whole numbers only.
    """
    low, high = float(low), float(high)
    if not high > low:
        high = low + (abs(low) or 1.0)
    step = max(tick_step((high - low) / 6), 1.0 if whole else 0.0)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    ticks = [number * step for number in range(first, last + 1)]
    places = [UNIT * (tick - low) / (high - low) for tick in ticks]
    return Scale(low, high, [(f"{t:.6g}", p) for t, p in zip(ticks, places, strict=True)])


def tick_step(rough: float) -> float:
    """The least of 1, 2 or 5 times a power of ten that is `rough` or more."""
    power = 10.0 ** math.floor(math.log10(rough))
    return power * min(factor for factor in (1, 2, 5, 10) if factor >= rough / power * (1 - 1e-9))


def path_of(x: np.ndarray, y: np.ndarray) -> str:
    """The way through points as the d of an SVG path; y grows upwards, as in a chart."""
    points = (f"{a:.1f} {UNIT - b:.1f}" for a, b in zip(x, y, strict=True))
    return "M" + "L".join(points)
