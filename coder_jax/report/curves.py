"""Lines of metrics.jsonl in, panels of training curves out, with their places in the picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coder_jax.report.plots import TRAINING_PANELS
from coder_jax.report.scales import Scale, path_of, scale_to

MOST_POINTS = 400  # of a curve; of longer ones means are drawn


@dataclass(frozen=True)
class Curve:
    """One quantity over another; `path` is its way through the picture (SVG)."""

    name: str
    x: list[int]
    y: list[float]
    path: str


@dataclass(frozen=True)
class Panel:
    """Curves that share their axes."""

    title: str
    unit: str
    x_name: str
    x: Scale
    y: Scale
    curves: list[Curve]


Points = Sequence[tuple[int, float]]


def training_panels(lines: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """The panels that `plots.plot_training` has, evaluations first; none without lines.

    Args:
      lines: as `metrics.read_metrics` gives them; metrics that are not in them get no panel.
    """
    steps = [line["step"] for line in lines]
    wanted = evaluation_curves(lines)
    panels = [panel("Evaluation", "mentions, %", wanted, "step", steps)] if wanted else []
    for title, unit, metrics in TRAINING_PANELS:
        curves = []
        for metric, name, _ in metrics:
            points = [(one["step"], one[metric]) for one in lines if one.get(metric) is not None]
            if points:
                curves.append((name or title.lower(), thinned(points)))
        if curves:
            shown = unit if unit != title.lower() else ""
            panels.append(panel(title, shown, curves, "step", steps))
    return panels


def evaluation_curves(lines: Sequence[Mapping[str, Any]]) -> list[tuple[str, Points]]:
    """(benchmark and acc@k, points of step and percent) of the evaluations in a run."""
    points: dict[str, list[tuple[int, float]]] = {}
    for line in lines:
        for benchmark, scores in line.get("eval", {}).items():
            for metric in ("acc@1", "acc@3", "acc@5"):
                if metric in scores:
                    held = points.setdefault(f"{benchmark} {metric}", [])
                    held.append((line["step"], 100 * scores[metric]))
    return list(points.items())


def thinned(points: Points) -> Points:
    """Points as they are, or MOST_POINTS means of equally long runs, each at its last step."""
    if len(points) <= MOST_POINTS:
        return points
    parts = np.array_split(np.array(points, np.float64), MOST_POINTS)
    return [(int(part[-1, 0]), float(part[:, 1].mean())) for part in parts]


def thinned_to(most: int, count: int) -> np.ndarray:
    """At most `most` of 0 .. count - 1, evenly, the first and the last among them: int64."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(np.int64))


def panel(
    title: str,
    unit: str,
    curves: Sequence[tuple[str, Points]],
    x_name: str,
    steps: Sequence[int],
    *,
    from_zero: bool = True,
) -> Panel:
    """Curves with their scales.

    Args:
      steps: the x axis reaches from the least to the largest of them.
      from_zero: the y axis begins at 0 or below, not at the least value.
    """
    every = np.array([point for _, points in curves for point in points], np.float64)
    least = every[:, 1].min()
    x = scale_to(min(steps), max(steps), whole=True)
    y = scale_to(min(0.0, least) if from_zero else least, every[:, 1].max())
    drawn = []
    for name, points in curves:
        across, values = np.array(points, np.float64).T
        path = path_of(x.places(across), y.places(values))
        rounded = [float(f"{value:.5g}") for value in values]
        drawn.append(Curve(name, across.astype(int).tolist(), rounded, path))
    return Panel(title, unit, x_name, x, y, drawn)
