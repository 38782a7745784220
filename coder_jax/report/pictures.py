"""Pictures of a report: matplotlib files, SVG drawings, and relation matrices."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
from markupsafe import Markup
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from coder_jax.encoding.encoder import TermEncoder
from coder_jax.encoding.vector_files import unit
from coder_jax.evaluation.benchmark import Given
from coder_jax.evaluation.normalization import Mentions
from coder_jax.evaluation.record import EvaluationRecord
from coder_jax.evaluation.similarity import pair_cosines
from coder_jax.mapping.confidence import CutoffTable
from coder_jax.report.curves import Curve, Panel, thinned_to, training_panels
from coder_jax.report.results import AnswersShown
from coder_jax.training.metrics import read_metrics
from data_pipeline import process
from data_pipeline.files.whole import written_whole
from data_pipeline.process import BadInput

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# -------------------------------------------------------------------------------------------------
# Scores, similarities and cut-offs, drawn by matplotlib; and the style of all pictures.
#
# matplotlib is needed only in this module, and is imported when something is drawn.

# The names and values of the page's colours in light (report.css): in the page the reader's setting
# decides. The first eight, of curves, are told apart by all readers, as Okabe and Ito's palette.
_COLOURS = {
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
_DASHES = ("-", "--", ":", "-.")
_CYCLE = [_COLOURS[f"c{number}"] for number in range(8)]
_BLUE, _GREY, _TEXT, _QUIET, _LINE = (
    _COLOURS[name] for name in ("c0", "c6", "text", "quiet", "line")
)
_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "text.color": _TEXT,
    "text.parse_math": False,  # a $ in a name is a $
    "axes.labelcolor": _QUIET,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _LINE,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _LINE,
    "xtick.color": _LINE,
    "ytick.color": _LINE,
    "xtick.labelcolor": _QUIET,
    "ytick.labelcolor": _QUIET,
    **{f"{axis}tick.{which}.size": 0 for axis in "xy" for which in ("major", "minor")},
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.facecolor": "white",
}


def _plot_scores(
    name: str, before: Mapping[str, float], after: Mapping[str, float], output: str | Path
) -> None:
    """Draws bars of the scores of a benchmark before and after training.

    Args:
      name: of the benchmark.
      before: metric -> share in [0, 1].
      after: the same metrics.
      output: the PNG file.
    """
    places = np.arange(len(before))
    with _style():
        figure, (axis,) = _new_figure(1, 1, width=3.6, height=3.4)
        for offset, label, scores, colour in (
            (-0.2, "before", before, _GREY),
            (0.2, "after", after, _BLUE),
        ):
            heights = [100 * score for score in scores.values()]
            bars = axis.bar(places + offset, heights, 0.38, color=colour, label=label)
            axis.bar_label(bars, fmt="%.1f", padding=2, fontsize=9)
        axis.set_xticks(places, list(before))
        axis.grid(False, axis="x")
        axis.set(ylim=(0, 112), ylabel="mentions, %", yticks=range(0, 101, 20))
        axis.set_title(name)
        figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=2)
        figure.suptitle(
            "Zero-shot normalization", x=0.01, ha="left", fontsize=12, fontweight="bold"
        )
        _save(figure, output)


def _plot_similarities(
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
        figure, axes = _new_figure(2, 1, width=6.6, height=2.7, shared=True)
        _draw_histograms(axes[0], "Before", *before, bins)
        _draw_histograms(axes[1], "After", *after, bins)
        axes[1].set_xlabel("cosine (dashed line: median)")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
        _save(figure, output)


def _draw_distribution(
    axis: Axes, low: float, high: float, counts: Mapping[str, list[int]]
) -> None:
    """Draws a histogram of similarities of answers.

    Args:
      low, high: the ends of the bins, which are equally wide.
      counts: by what a bar is of, one of each bin; the right answers first.
    """
    edges = np.linspace(low, high, len(next(iter(counts.values()))) + 1)
    for number, ((label, heights), colour) in enumerate(zip(counts.items(), _CYCLE, strict=False)):
        axis.stairs(heights, edges, fill=True, color=colour, alpha=0.55, label=label)
        axis.stairs(heights, edges, color=colour, linewidth=1.4, gid=f"curve-{number}")
    axis.set(xlabel="similarity of the answer", ylabel="mentions", xlim=(low, high))
    axis.locator_params(axis="x", nbins=5)
    axis.locator_params(axis="y", nbins=6, integer=True)
    axis.yaxis.set_major_formatter("{x:,.0f}")
    axis.legend(loc="upper left")


def _draw_cutoffs(axis: Axes, table: CutoffTable) -> None:
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
            color=_CYCLE[number],
            linestyle=_DASHES[number],
            linewidth=1.6,
            gid=f"curve-{number}",
        )
    axis.set(xlabel="cut-off: least similarity of an answer", ylabel="%", ylim=(0, 102))
    axis.locator_params(axis="x", nbins=5)
    axis.legend(loc="lower left")


def _style() -> AbstractContextManager[None]:
    """The style of all figures, inside the context."""
    import matplotlib

    return matplotlib.rc_context(_STYLE)


def _new_figure(
    rows: int, columns: int, *, width: float, height: float, shared: bool = False
) -> tuple[Figure, list[Axes]]:
    """A figure without pyplot's global state, and its axes row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared)
    return figure, list(axes.flat)


def _draw_histograms(
    axis: Axes, name: str, synonyms: np.ndarray, random_pairs: np.ndarray, bins: list[float]
) -> None:
    for label, cosines, colour in (
        ("random pairs", random_pairs, _GREY),
        ("synonym pairs", synonyms, _BLUE),
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
    """Writes a figure as a PNG file, atomically."""
    output = Path(output)
    try:
        with written_whole(output) as unfinished:
            figure.savefig(unfinished, dpi=150, format="png")
    except OSError as error:
        raise BadInput(
            f"{output}: cannot be written ({error.strerror}); give another path"
        ) from error


# -------------------------------------------------------------------------------------------------
# Curves over the steps of one or several runs, drawn by matplotlib.
#
# The same curves are drawn as picture files and, as SVG, in the page of a report.

_DOTS_UP_TO = 30  # points of a curve


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
        _looks(panel) <= _looks(panels[fullest]) and not panel.many for panel in panels
    )
    with _style():
        figure, axes = _new_figure(-(-len(panels) // columns), columns, width=4.2, height=3.1)
        for axis, panel in zip(axes, panels, strict=False):
            _draw_panel(axis, panel, legend=not alike)
            axis.set_title(panel.title)
        if alike:
            handles, names = axes[fullest].get_legend_handles_labels()
            figure.legend(handles, names, loc="outside lower center", ncols=min(len(names), 6))
        for axis in axes[len(panels) :]:
            axis.set_visible(False)
        _save(figure, output)


def _looks(panel: Panel) -> set[tuple[str, int, int]]:
    """The names of a panel's curves, and how each is drawn."""
    return {(curve.name, curve.colour, curve.dash) for curve in panel.curves}


def _draw_panel(axis: Axes, panel: Panel, *, legend: bool = True) -> None:
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
    look["linestyle"] = _DASHES[curve.dash % len(_DASHES)]
    look["color"] = _QUIET if panel.many else _CYCLE[curve.colour % len(_CYCLE)]
    if panel.many:
        look["linewidth"] = 1.0
    elif len(curve.x) <= _DOTS_UP_TO:
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


# -------------------------------------------------------------------------------------------------
# Pictures of held-out scores, for runs that draw none of their own.

Scored = tuple[TermEncoder, EvaluationRecord]


def plot_heldout(folder: Path, mentions: Path, before: Scored, after: Scored) -> None:
    """Draws scores.png, and similarities.png: cosines of held-out terms with a synonym of theirs.

    Args:
      folder: of the pictures.
      mentions: the held-out terms and their concepts; the dictionary lies beside them.
      before, after: encoders with their records on these terms.
    """
    first, last = (
        {name: record.scores[name] or 0.0 for name in ("acc@1", "acc@5")}
        for _, record in (before, after)
    )
    _plot_scores(before[1].benchmark, first, last, folder / "scores.png")
    terms, synonyms = _heldout_pairs(mentions)
    others = synonyms[1:] + synonyms[:1]  # each term beside a synonym of another

    def cosines(encoder: TermEncoder) -> tuple[np.ndarray, np.ndarray]:
        near, far = (pair_cosines(encoder.encode, terms, side) for side in (synonyms, others))
        return near, far

    _plot_similarities(cosines(before[0]), cosines(after[0]), folder / "similarities.png")


def _heldout_pairs(mentions: Path) -> tuple[list[str], list[str]]:
    """The held-out terms, and for each the first term that its concept still has."""
    (fold,) = Mentions.read(Given("heldout", mentions)).folds
    first_term: dict[str, str] = {}
    for term, concept in zip(fold.dictionary.terms, fold.dictionary.concepts, strict=True):
        first_term.setdefault(concept, term)
    return fold.mentions, [first_term[concept] for concept in fold.gold]


# -------------------------------------------------------------------------------------------------
# Relation matrices: their singular values, and their similarity to each other.
#
# A relation whose matrix is the identity leaves vectors as they are, and training begins there:
# what it learned is the difference from the identity. So relations are chosen by the size of that
# difference, and compared by the cosine between the differences.

_SHOWN = 48  # relations whose names can still be read beside a heat map
_LEAST_SCALE = 0.02
LEAST_SQUARES = 3  # relations that a heat map tells more of than a sentence
_SPECTRUM_POINTS = 96


@dataclass(frozen=True)
class RelationFigure:
    """Some relations, ordered so that similar ones are adjacent.

    Attributes:
      labels: n of them.
      total: how many relations there are.
      moved: float64 [n], Frobenius norm of the difference from the identity.
      spectrum: float64 [n, D], singular values, largest first.
      similarity: float64 [n, n], cosines between the differences.
    """

    labels: list[str]
    total: int
    moved: np.ndarray
    spectrum: np.ndarray
    similarity: np.ndarray

    @property
    def scale(self) -> float:
        """The cosine of the heat map's full colour: the largest between two relations, or
        _LEAST_SCALE.
        """
        others = np.abs(self.similarity[~np.eye(len(self.similarity), dtype=bool)])
        return max(_LEAST_SCALE, float(others.max(initial=0)))

    @property
    def effective_rank(self) -> np.ndarray:
        """float64 [n]: exp of the entropy of a relation's singular values; D for the identity.

        Roy and Vetterli 2007, The effective rank.
        """
        shares = self.spectrum / self.spectrum.sum(axis=1, keepdims=True)
        logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
        return np.exp(-(shares * logs).sum(axis=1))


def compare_relations(
    matrices_RDD: np.ndarray, labels: Sequence[str], *, shown: int = _SHOWN
) -> RelationFigure:
    """The `shown` relations that lie furthest from the identity.

    Args:
      matrices_RDD: float [R, D, D].
      labels: R of them.
      shown: at least 1.
    """
    width = matrices_RDD.shape[-1]
    moved = np.array([np.linalg.norm(one - np.eye(width)) for one in matrices_RDD])
    chosen = np.sort(np.argsort(-moved, kind="stable")[:shown])
    differences = matrices_RDD[chosen].astype(np.float64) - np.eye(width)
    spectrum = []
    for number in chosen:
        process.poll()
        spectrum.append(np.linalg.svd(matrices_RDD[number].astype(np.float64), compute_uv=False))
    flat = differences.reshape(len(chosen), -1)
    similarity = _cosines(flat)
    order = _clustered(similarity)
    chosen = chosen[order]
    return RelationFigure(
        [labels[number] for number in chosen],
        len(labels),
        moved[chosen],
        np.array(spectrum)[order],
        similarity[np.ix_(order, order)],
    )


def spectrum_panel(relations: RelationFigure) -> Panel:
    """Singular values over their rank, a curve for each relation."""
    ranks = thinned_to(_SPECTRUM_POINTS, relations.spectrum.shape[1])
    curves = [
        Curve(label, (ranks + 1).tolist(), values[ranks].tolist())
        for label, values in zip(relations.labels, relations.spectrum, strict=True)
    ]
    reach = 1, relations.spectrum.shape[1]
    return Panel("Singular values", "", "rank", reach, curves, many=True, from_zero=False)


def _cosines(rows_NM: np.ndarray) -> np.ndarray:
    """Cosines of all pairs of rows, [N, N]; 0 with a row of zeros."""
    unit_NM = unit(rows_NM, "relations", rows_NM.dtype)
    return np.clip(unit_NM @ unit_NM.T, -1, 1)


def _clustered(similarity: np.ndarray) -> np.ndarray:
    """An order that puts similar things side by side: the leaves of average-linkage clustering.

    Args:
      similarity: [n, n], symmetric, in [-1, 1].
    """
    if len(similarity) < 3:
        return np.arange(len(similarity))
    distance = squareform(1 - similarity, checks=False)
    return leaves_list(linkage(distance, "average", optimal_ordering=True))


# -------------------------------------------------------------------------------------------------
# matplotlib pictures as SVG inside the page: curves, histograms, the heat map of relations.
#
# What is written here fetches nothing and has no style of its own but for sizes: colours are the
# page's (`var(--c0)`), so that they follow the reader's setting, and text stays text in the page's
# font. The same picture gives the same text, and ids are those of one picture alone.

_LETTERS = 36  # of a name beside the heat map; the rest of it shows when one points at it
_CELL = 9.75  # points: 13 pixels of a screen; larger ones, of few relations, fill _LEAST_WIDTH
_LEAST_WIDTH, _LARGEST_CELL = 180.0, 36.0  # points
_VARIABLES = {colour: f"var(--{name})" for name, colour in _COLOURS.items()}


def panel_svg(panel: Panel, name: str, *, wide: bool = False) -> Markup:
    """A panel of curves as SVG; each curve shows its name and end points on hover.

    Args:
      name: of the picture, a word that no other picture of the page has.
      wide: whether it is to fill the page's width.
    """
    told = {
        f"curve-{number}": {
            "class": "curve many" if panel.many else "curve",
            "title": f"{curve.name}: {curve.y[0]:.5g} at {panel.x_name} {curve.x[0]}, "
            f"{curve.y[-1]:.5g} at {curve.x[-1]}",
        }
        for number, curve in enumerate(panel.curves)
    }
    shown = [one["title"] for one in told.values()][:6]
    with _style():
        width, height = (9.6, 3.6) if wide else (4.2, 3.1)
        figure, (axis,) = _new_figure(1, 1, width=width, height=height)
        _draw_panel(axis, panel)
        return _svg_of(figure, name, f"{panel.title}. {'; '.join(shown)}", told)


def distribution_svg(given: AnswersShown, name: str) -> Markup:
    """Histogram of similarities of right and wrong answers, as SVG."""
    counts = {"right": given.right, "wrong": given.wrong}
    told = {f"curve-{n}": {"class": "curve", "title": one} for n, one in enumerate(counts)}
    label = f"Similarities of {sum(given.right):,} right and {sum(given.wrong):,} wrong answers"
    with _style():
        figure, (axis,) = _new_figure(1, 1, width=4.2, height=3.1)
        _draw_distribution(axis, given.low, given.high, counts)
        return _svg_of(figure, name, label, told)


def cutoffs_svg(table: CutoffTable, name: str) -> Markup:
    """Precision and coverage against the cut-off."""
    told = {
        f"curve-{number}": {"class": "curve", "title": title}
        for number, title in enumerate(("precision", "coverage"))
    }
    lowest, highest = table.rows[0], table.rows[-1]
    label = (
        f"Precision and coverage of {table.mentions:,} mentions by cut-off: "
        f"{lowest.precision:.1%} and {lowest.coverage:.1%} at {lowest.cutoff:g}, "
        f"{highest.precision:.1%} and {highest.coverage:.1%} at {highest.cutoff:g}"
    )
    with _style():
        figure, (axis,) = _new_figure(1, 1, width=4.2, height=3.1)
        _draw_cutoffs(axis, table)
        return _svg_of(figure, name, label, told)


def heat_map_svg(relations: RelationFigure) -> Markup:
    """The cosines of relations as squares; the full colour stands for `relations.scale`.

    The squares are the children of `.cells`, row by row; names have `data-row` or `data-column`.
    """
    told = {
        f"{kind}-{number}": {f"data-{kind}": str(number), "title": label}
        for kind in ("row", "column")
        for number, label in enumerate(relations.labels)
    }
    with _style():
        figure = _draw_heat_map(relations)
        told["cells"] = {"class": "cells"}
        return _svg_of(figure, "heat", "Cosines between relations", told, tight=True)


def _draw_heat_map(relations: RelationFigure) -> Figure:
    """A square for each pair of relations; names on the left and on top.

    The full colour stands for `relations.scale`. The gid of the squares, row by row, is `cells`,
    those of the names are `row-i` and `column-i`.
    """
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    count = len(relations.labels)
    plus, minus = _COLOURS["c0"], _COLOURS["minus"]
    stops = [(0.0, minus, 1.0), (0.5, minus, 0.0), (0.5, plus, 0.0), (1.0, plus, 1.0)]
    ramp = [(place, to_rgba(colour, alpha)) for place, colour, alpha in stops]
    colours = LinearSegmentedColormap.from_list("cosines", ramp, N=512)
    size = count * min(max(_CELL, _LEAST_WIDTH / count), _LARGEST_CELL) / 72
    figure, (axis,) = _new_figure(1, 1, width=size, height=size)
    figure.set_layout_engine("none")
    axis.set_position((0, 0, 1, 1))
    limit = relations.scale
    mesh = axis.pcolormesh(relations.similarity, cmap=colours, vmin=-limit, vmax=limit)
    mesh.set(gid="cells", clip_on=False)
    names = [one if len(one) <= _LETTERS else one[: _LETTERS - 1] + "…" for one in relations.labels]
    axis.xaxis.tick_top()
    places = np.arange(count) + 0.5
    axis.set_xticks(places, names, rotation=90, fontsize=8)
    axis.set_yticks(places, names, fontsize=8)
    for kind, labels in (("row", axis.get_yticklabels()), ("column", axis.get_xticklabels())):
        for number, label in enumerate(labels):
            label.set(gid=f"{kind}-{number}", color=_TEXT)
    axis.invert_yaxis()
    axis.grid(False)
    axis.set_frame_on(False)
    return figure


def _svg_of(
    figure: Figure, name: str, label: str, told: Mapping[str, Mapping[str, str]], *, tight=False
) -> Markup:
    """A figure as an <svg> element for an HTML page.

    Args:
      name: its id, which the ids within it begin with.
      label: what it is, for those who do not see it.
      told: gid of an artist -> attributes of its element; `title` becomes a <title> in it.
      tight: around all that is drawn, at its own size; else as wide as the page makes it.
    """
    import matplotlib

    for patch in (figure.patch, *(axis.patch for axis in figure.axes)):
        patch.set_visible(False)  # the page's ground
    written = io.StringIO()
    options: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": name}
    with matplotlib.rc_context(options), warnings.catch_warnings():
        # The page's font has letters that matplotlib's font, used only for measuring, lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        figure.savefig(
            written, format="svg", metadata={"Date": None}, bbox_inches="tight" if tight else None
        )
    found = ElementTree.fromstring(written.getvalue())
    root = _cleaned(found, name, told)
    size = {key: found.attrib[key] for key in ("width", "height") if tight}
    box = found.attrib["viewBox"]
    root.attrib = {"id": name, "class": "drawn", **size, "viewBox": box, "role": "img"}
    root.attrib["aria-label"] = label
    return Markup(ElementTree.tostring(root, encoding="unicode", short_empty_elements=True))


def _cleaned(
    element: ElementTree.Element, name: str, told: Mapping[str, Mapping[str, str]]
) -> ElementTree.Element:
    """An element of matplotlib's SVG with all its children, cleaned for the page."""
    tag = element.tag.rpartition("}")[2]
    own = told.get(element.get("id", ""), {})
    new = ElementTree.Element(tag, {key: own[key] for key in own if key != "title"})
    if "title" in own:
        ElementTree.SubElement(new, "title").text = own["title"]
    if tag == "text":
        new.text = element.text
    for key, value in element.attrib.items():
        key = key.rpartition("}")[2]
        if key == "style":
            value = _plain_style(value)
        elif key == "d":
            value = _shorter(" ".join(value.split()))
            if "C" not in value:  # no Bézier curve: what follows M are lines
                value = value.replace("L ", "")
        elif key in ("x", "y", "transform"):
            value = _shorter(value)
        elif key == "href":
            value = f"#{name}-{value[1:]}"
        elif key == "id" and tag != "g":  # what <use> shows again; a group's is its kind, numbered
            value = f"{name}-{value}"
        else:
            continue
        if value:
            new.set(key, value)
    for child in element:
        if child.tag.rpartition("}")[2] not in ("metadata", "style"):
            new.append(_cleaned(child, name, told))
    return new


def _plain_style(style: str) -> str:
    """Declarations of a style without fonts, and with the page's colours."""
    kept = []
    for declaration in style.split(";"):
        key, _, value = (part.strip() for part in declaration.partition(":"))
        if key in ("font-family", "font-style", "font-weight"):
            continue
        kept.append(f"{key}:{_VARIABLES.get(value, _shorter(value))}")
    return ";".join(kept)


def _shorter(numbers: str) -> str:
    """Numbers in a text, rounded to a hundredth of a point."""
    return re.sub(
        r"\d+\.\d+", lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), numbers
    )
