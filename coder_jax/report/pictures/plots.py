"""Scores, similarities and cut-offs, drawn by matplotlib; and the style of all pictures.

matplotlib is needed only here and in `curve_plots.py`, and is imported when something is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coder_jax.mapping.cutoffs import CutoffTable
from data_pipeline.files.whole_files import written_whole
from data_pipeline.process.errors import BadInput

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The names and values of the page's colours in light (report.css): in the page the reader's setting
# decides. The first eight, of curves, are told apart by all readers, as Okabe and Ito's palette.
COLOURS = {
    "c0": "#0072b2",
    "c1": "#d55e00",
    "c2": "#00805c",
    "c3": "#a8357d",
    "c4": "#a67c00",
    "c5": "#2b8fc4",
    "c6": "#737373",
    "c7": "#7a4b1e",
    "text": "#1d1f21",
    "quiet": "#5b6066",
    "line": "#d9d9d3",
    "minus": "#c85200",
}
DASHES = ("-", "--", ":", "-.")
CYCLE = [COLOURS[f"c{number}"] for number in range(8)]
BLUE, GREY, TEXT, QUIET, LINE = (COLOURS[name] for name in ("c0", "c6", "text", "quiet", "line"))
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "text.color": TEXT,
    "text.parse_math": False,  # a $ in a name is a $
    "axes.labelcolor": QUIET,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": LINE,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": QUIET,
    "ytick.labelcolor": QUIET,
    **{f"{axis}tick.{which}.size": 0 for axis in "xy" for which in ("major", "minor")},
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.facecolor": "white",
}


def plot_scores(
    before: Mapping[str, Mapping[str, float]],
    after: Mapping[str, Mapping[str, float]],
    output: str | Path,
    *,
    metrics: Sequence[str] = ("acc@1", "acc@3", "acc@5"),
    title: str = "Zero-shot normalization",
) -> None:
    """Draws bars of scores before and after training, one panel for each name.

    Args:
      before: name (a pooling or a benchmark) -> metric -> share in [0, 1].
      after: the same names.
      output: the PNG file.
      metrics: in this order; those that a name lacks are left out.
      title: of the whole picture.
    """
    names = [name for name in before if name in after]
    if not names:
        raise ValueError(f"found {list(before)} before and {list(after)} after; expected one name")
    with style():
        figure, axes = new_figure(1, len(names), width=max(3.6, 1.4 * len(metrics)), height=3.4)
        for axis, name in zip(axes, names, strict=True):
            _draw_bars(axis, before[name], after[name], metrics)
            axis.set_title(name)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
        save(figure, output)


def plot_similarities(
    before: tuple[np.ndarray, np.ndarray],
    after: tuple[np.ndarray, np.ndarray],
    output: str | Path,
) -> None:
    """Draws histograms of cosines of synonym pairs and of random pairs, before and after.

    The share in each title is the chance that a synonym pair is nearer than a random pair (ties by
    half), the area under the ROC curve.

    Args:
      before: (cosines of synonym pairs [n], cosines of random pairs [m]) of the initial encoder.
      after: the same of the trained encoder.
      output: the PNG file.
    """
    everything = np.concatenate([*before, *after])
    bins = np.linspace(min(0.0, float(everything.min())), 1, 61).tolist()
    with style():
        figure, axes = new_figure(2, 1, width=6.6, height=2.7, shared=True)
        _draw_histograms(axes[0], "Before", *before, bins)
        _draw_histograms(axes[1], "After", *after, bins)
        axes[1].set_xlabel("cosine (dashed line: median)")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
        save(figure, output)


def draw_distribution(axis: Axes, low: float, high: float, counts: Mapping[str, list[int]]) -> None:
    """Draws how many answers have which similarity.

    Args:
      low, high: the ends of the bins, which are equally wide.
      counts: by what a bar is of, one of each bin; the right answers first.
    """
    edges = np.linspace(low, high, len(next(iter(counts.values()))) + 1)
    for number, ((label, heights), colour) in enumerate(zip(counts.items(), CYCLE, strict=False)):
        axis.stairs(heights, edges, fill=True, color=colour, alpha=0.55, label=label)
        axis.stairs(heights, edges, color=colour, linewidth=1.4, gid=f"curve-{number}")
    axis.set(xlabel="similarity of the answer", ylabel="mentions", xlim=(low, high))
    axis.locator_params(axis="x", nbins=5)
    axis.locator_params(axis="y", nbins=6, integer=True)
    axis.yaxis.set_major_formatter("{x:,.0f}")
    axis.legend(loc="upper left")


def draw_cutoffs(axis: Axes, table: CutoffTable) -> None:
    """Draws precision and coverage, in percent, against the cut-off."""
    rows = table.rows
    cutoffs = [row.cutoff for row in rows]
    for number, (name, shares) in enumerate(
        {
            "precision": [row.precision for row in rows],
            "coverage": [row.coverage for row in rows],
        }.items()
    ):
        axis.plot(
            cutoffs,
            [100 * share for share in shares],
            label=name,
            color=CYCLE[number],
            linestyle=DASHES[number],
            linewidth=1.6,
            gid=f"curve-{number}",
        )
    axis.set(xlabel="cut-off: least similarity of an answer", ylabel="%", ylim=(0, 102))
    axis.locator_params(axis="x", nbins=5)
    axis.legend(loc="lower left")


def style() -> AbstractContextManager[None]:
    """The style of all figures, as long as the context lasts."""
    import matplotlib

    return matplotlib.rc_context(STYLE)


def new_figure(
    rows: int, columns: int, *, width: float, height: float, shared: bool = False
) -> tuple[Figure, list[Axes]]:
    """A figure without pyplot, so that nothing global is touched, and its axes row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared)
    return figure, list(axes.flat)


def _draw_bars(
    axis: Axes, before: Mapping[str, float], after: Mapping[str, float], metrics: Sequence[str]
) -> None:
    shown = [metric for metric in metrics if metric in before and metric in after]
    places = np.arange(len(shown))
    for offset, label, scores, colour in (
        (-0.2, "before", before, GREY),
        (0.2, "after", after, BLUE),
    ):
        heights = [100 * scores[metric] for metric in shown]
        bars = axis.bar(places + offset, heights, 0.38, color=colour, label=label)
        axis.bar_label(bars, fmt="%.1f", padding=2, fontsize=9)
    axis.set_xticks(places, shown)
    axis.grid(False, axis="x")
    axis.set(ylim=(0, 112), ylabel="mentions, %", yticks=range(0, 101, 20))


def _draw_histograms(
    axis: Axes, name: str, synonyms: np.ndarray, random_pairs: np.ndarray, bins: list[float]
) -> None:
    for label, cosines, colour in (
        ("random pairs", random_pairs, GREY),
        ("synonym pairs", synonyms, BLUE),
    ):
        shares = np.full(len(cosines), 100 / len(cosines))
        axis.hist(cosines, bins, weights=shares, color=colour, alpha=0.65, label=label)
        axis.axvline(float(np.median(cosines)), color=colour, linewidth=1.5, linestyle="--")
    ordered = np.sort(random_pairs)
    below = np.searchsorted(ordered, synonyms, side="left")
    below_or_equal = np.searchsorted(ordered, synonyms, side="right")
    nearer = (below + below_or_equal).mean() / 2 / len(ordered)
    axis.set(
        title=f"{name}: a synonym pair is nearer than a random pair in {100 * nearer:.1f} %",
        ylabel="pairs, %",
    )


def save(figure: Figure, output: str | Path) -> None:
    """Writes a figure as a PNG file, whole or not at all."""
    output = Path(output)
    try:
        with written_whole(output) as unfinished:
            figure.savefig(unfinished, dpi=150, format="png")
    except OSError as error:
        raise BadInput(
            f"{output}: cannot be written ({error.strerror}); give another path"
        ) from error
