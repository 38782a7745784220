"""Curves over the steps of a run, or of several, drawn by matplotlib.

They are the same in a picture of its own and in the page of a report, which has them as SVG
(`page/svg.py`). matplotlib is imported when something is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coder_jax.report.curves import Curve, Panel, training_panels
from coder_jax.report.pictures.plots import CYCLE, DASHES, QUIET, new_figure, save, style
from coder_jax.runs.metrics import read_metrics
from data_pipeline.process.errors import BadInput

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOTS_UP_TO = 30  # points of a curve


def plot_training(metrics: str | Path, output: str | Path) -> None:
    """Draws the curves of a run: evaluations, and a panel for each kind of metric in it.

    Args:
      metrics: a metrics.jsonl as training writes it.
      output: the PNG file.
    """
    panels = training_panels(read_metrics(metrics))
    if not panels:
        raise BadInput(f"{metrics}: found no metrics; expected lines such as {{'step': 10, ...}}")
    plot_panels(panels, output)


def plot_panels(panels: Sequence[Panel], output: str | Path) -> None:
    """Draws panels side by side, with one legend below if all show the same things.

    Args:
      panels: one or more.
      output: the PNG file.
    """
    columns = min(len(panels), 3 if len(panels) <= 6 else 4)
    fullest = max(range(len(panels)), key=lambda number: len(panels[number].curves))
    alike = len(panels) > 1 and all(
        looks(panel) <= looks(panels[fullest]) and not panel.many for panel in panels
    )
    with style():
        figure, axes = new_figure(-(-len(panels) // columns), columns, width=4.2, height=3.1)
        for axis, panel in zip(axes, panels, strict=False):
            draw_panel(axis, panel, legend=not alike)
            axis.set_title(panel.title)
        if alike:
            handles, names = axes[fullest].get_legend_handles_labels()
            figure.legend(handles, names, loc="outside lower center", ncols=min(len(names), 6))
        for axis in axes[len(panels) :]:
            axis.set_visible(False)
        save(figure, output)


def looks(panel: Panel) -> set[tuple[str, int, int]]:
    """The names of its curves, and how they are drawn."""
    return {(curve.name, curve.colour, curve.dash) for curve in panel.curves}


def draw_panel(axis: Axes, panel: Panel, *, legend: bool = True) -> None:
    """Draws curves with their axes and, of several or well-named ones and if wanted, a legend.

    The gid of the line of curve i is `curve-i`, and `pale-i` where a running mean lies on top.
    """
    for number, curve in enumerate(panel.curves):
        _draw_curve(axis, number, curve, panel)
    least = min(min(curve.y) for curve in panel.curves)
    if panel.log:
        axis.set_yscale("log", nonpositive="mask")
        axis.yaxis.set_minor_formatter("")
    elif panel.from_zero:
        axis.set_ylim(bottom=min(0.0, 1.05 * least))
    first, last = panel.x_range
    room = 0.02 * (last - first) or 0.5
    if panel.log_x:
        axis.set_xscale("log")
        axis.set_xticks(sorted({x for curve in panel.curves for x in curve.x}))
        axis.minorticks_off()
    else:
        axis.set_xlim(first - room, last + room)
        axis.locator_params(axis="x", integer=True, nbins=5)
    if not panel.log:
        axis.locator_params(axis="y", nbins=7)
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.yaxis.set_major_formatter("{x:g}")  # 4e-05 at the tick, not a factor over the title
    axis.set(xlabel=panel.x_name, ylabel=panel.unit)
    (name, *more) = (curve.name for curve in panel.curves)
    if legend and not panel.many and (more or name.lower() != panel.title.lower()):
        axis.legend(ncols=1 if len(more) < 8 else 2)


def _draw_curve(axis: Axes, number: int, curve: Curve, panel: Panel) -> None:
    """Draws one curve, with bars of its errors; a long noisy one pale, its running mean on top."""
    look: dict[str, Any] = {"clip_on": False, "linewidth": 1.6, "gid": f"curve-{number}"}
    look["linestyle"] = DASHES[curve.dash % len(DASHES)]
    look["color"] = QUIET if panel.many else CYCLE[curve.colour % len(CYCLE)]
    if panel.many:
        look["linewidth"] = 1.0
    elif len(curve.x) <= DOTS_UP_TO:
        look |= {"marker": "o", "markersize": 3.5}
    x, y = np.array(curve.x), np.array(curve.y)
    window = len(y) // 25
    if panel.noisy and window > 1:
        axis.plot(x, y, **look | {"alpha": 0.25, "linewidth": 0.8, "gid": f"pale-{number}"})
        sums = np.cumsum(np.insert(y, 0, 0))
        x = x[window // 2 : window // 2 + len(x) - window + 1]
        y = (sums[window:] - sums[:-window]) / window
    axis.plot(x, y, label=curve.name.lstrip("_"), **look)
    if any(curve.errors):
        known = [error or np.nan for error in curve.errors]
        bars = {"ecolor": look["color"], "elinewidth": 1.0, "capsize": 2.5}
        axis.errorbar(curve.x, curve.y, yerr=known, fmt="none", **bars)
