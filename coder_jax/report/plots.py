"""metrics.jsonl, scores and cosines in, PNG files out: what a training run did and what it gave.

matplotlib is needed only here and is imported when a plot is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coder_jax.runs.metrics import read_metrics
from data_pipeline.files.whole_files import written_whole
from data_pipeline.process.errors import BadInput

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart by all readers, and in grey.
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#8C8C8C"
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.facecolor": "white",
}

# One panel: title, unit of its y axis, and the metrics in it with their names and colours.
TRAINING_PANELS: list[tuple[str, str, list[tuple[str, str, str]]]] = [
    (
        "Loss",
        "loss",
        [
            ("loss", "total", BLUE),
            ("loss_term", "term-term", ORANGE),
            ("loss_relation", "relation", GREEN),
            ("loss_type", "semantic type", GREY),
        ],
    ),
    (
        "Accuracy",
        "share right",
        [
            ("corrupted_farther", "corrupted tails farther away", BLUE),
            ("type_accuracy", "semantic types", ORANGE),
        ],
    ),
    (
        "Mined pairs",
        "pairs per anchor",
        [("mined_positives", "positives", BLUE), ("mined_negatives", "negatives", ORANGE)],
    ),
    ("Gradient norm", "norm before clipping", [("grad_norm", "", BLUE)]),
    ("Learning rate", "learning rate", [("learning_rate", "", BLUE)]),
    ("Speed", "terms per second", [("terms_per_s", "", BLUE)]),
    (
        "Packing and waiting",
        "share",
        [("fill", "filled tokens", BLUE), ("data_wait", "time waiting for data", ORANGE)],
    ),
]


def plot_training(metrics: str | Path, output: str | Path) -> None:
    """Draws the curves of a run: losses, mined pairs, gradient norm, rate, speed, evaluations.

    Args:
      metrics: a metrics.jsonl as training writes it; metrics that are not in it get no panel.
      output: the PNG file.
    """
    entries = read_metrics(metrics)
    if not entries:
        raise BadInput(f"{metrics}: found no metrics; expected lines such as {{'step': 10, ...}}")
    panels = [
        (title, unit, [curve for curve in curves if any(curve[0] in line for line in entries)])
        for title, unit, curves in TRAINING_PANELS
    ]
    panels = [panel for panel in panels if panel[2]]
    evaluations = [line for line in entries if "eval" in line]
    total = len(panels) + bool(evaluations)
    columns = min(total, 3 if total <= 6 else 4)
    with _style():
        figure, axes = _figure(-(-total // columns), columns, width=4.2, height=3.1)
        if evaluations:
            _draw_evaluations(axes.pop(0), evaluations)
        for axis, (title, unit, curves) in zip(axes, panels, strict=False):
            _draw_curves(axis, entries, curves)
            axis.set(title=title, ylabel=unit, xlabel="step")
        for axis in axes[len(panels) :]:
            axis.set_visible(False)
        _save(figure, output)


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
    with _style():
        figure, axes = _figure(1, len(names), width=max(3.6, 1.4 * len(metrics)), height=3.4)
        for axis, name in zip(axes, names, strict=True):
            _draw_bars(axis, before[name], after[name], metrics)
            axis.set_title(name)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
        _save(figure, output)


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
    with _style():
        figure, axes = _figure(2, 1, width=6.6, height=2.7, shared=True)
        _draw_histograms(axes[0], "Before", *before, bins)
        _draw_histograms(axes[1], "After", *after, bins)
        axes[1].set_xlabel("cosine (dashed line: median)")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
        _save(figure, output)


def _style() -> AbstractContextManager[None]:
    import matplotlib

    return matplotlib.rc_context(STYLE)


def _figure(
    rows: int, columns: int, *, width: float, height: float, shared: bool = False
) -> tuple[Figure, list[Axes]]:
    """A figure without pyplot, so that nothing global is touched, and its axes row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared)
    return figure, list(axes.flat)


def _draw_curves(
    axis: Axes, entries: Sequence[Mapping[str, Any]], curves: Sequence[tuple[str, str, str]]
) -> None:
    """Draws metrics over steps; long ones pale, with their running mean on top."""
    for metric, label, colour in curves:
        points = [(line["step"], line[metric]) for line in entries if line.get(metric) is not None]
        steps, values = np.array(points, dtype=np.float64).T
        window = len(values) // 25
        if window > 1 and metric != "learning_rate":  # the rate is exact
            axis.plot(steps, values, color=colour, alpha=0.25, linewidth=0.8)
            sums = np.cumsum(np.insert(values, 0, 0))
            steps = steps[window // 2 : window // 2 + len(steps) - window + 1]
            values = (sums[window:] - sums[:-window]) / window
        axis.plot(steps, values, color=colour, linewidth=1.6, label=label or None)
    if any(label for _, label, _ in curves):
        axis.legend()
    axis.set_ylim(bottom=0)
    axis.yaxis.set_major_formatter("{x:g}")  # 4e-05 at the tick, not a factor over the title


def _draw_evaluations(axis: Axes, evaluations: Sequence[Mapping[str, Any]]) -> None:
    """Draws acc@k over steps: a colour for each k, a line style for each benchmark."""
    benchmarks = list(dict.fromkeys(name for line in evaluations for name in line["eval"]))
    for benchmark, style in zip(benchmarks, ("-", "--", ":", "-.") * 8, strict=False):
        for metric, colour in (("acc@1", BLUE), ("acc@3", GREEN), ("acc@5", ORANGE)):
            points = [
                (line["step"], 100 * line["eval"][benchmark][metric])
                for line in evaluations
                if metric in line["eval"].get(benchmark, {})
            ]
            if points:
                steps, values = zip(*points, strict=True)
                axis.plot(
                    steps, values, style, color=colour, marker="o", markersize=3.5,
                    label=f"{benchmark} {metric}",
                )  # fmt: skip
    axis.legend()
    axis.set(title="Evaluation", ylabel="mentions, %", xlabel="step")


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


def _save(figure: Figure, output: str | Path) -> None:
    output = Path(output)
    try:
        with written_whole(output) as unfinished:
            figure.savefig(unfinished, dpi=150, format="png")
    except OSError as error:
        raise BadInput(
            f"{output}: cannot be written ({error.strerror}); give another path"
        ) from error
