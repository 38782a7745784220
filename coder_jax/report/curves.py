"""Training curves of a run, and curves of other runs to compare with."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_pipeline.files.identity import read_json, typed
from data_pipeline.files.whole import write_json
from data_pipeline.process import BadInput

# -------------------------------------------------------------------------------------------------
# The curves of a run: metrics.jsonl as panels of curves with shared axes.
#
# Which there are depends on the metrics that a run wrote, not on its system. Metrics whose names
# begin alike (`loss_term`, `grad_norm/encoder`) share one; known ones get words.

_MOST_POINTS = 400  # of a curve; of longer ones means are drawn
_LOG_FROM = 30  # times the least, the largest gradient norm: from here on the axis is logarithmic
_GRADIENTS = "Gradient norm"
_QUICK_LOOK = (
    "While training, mentions are looked up among at most --eval-terms terms: those of their own "
    "concepts, then others. Among all terms of a dictionary fewer of them are right."
)
_BY_CLASSES = (
    "By classes: the most probable of all {count} concepts of the model, the semantic group of the "
    "mention given. By nearest terms: with the same encoder, no group given."
)

# Panels of well-known metrics, in order: title, unit, metric names.
_PANELS = [
    ("Loss", "", r"loss([_/].*)?"),
    ("Accuracy", "share right", r"corrupted_farther|.*accuracy"),
    ("Mined pairs", "pairs per anchor", r"mined_.*"),
    (_GRADIENTS, "norm before clipping", r"grad_norm(/.*)?"),
    ("Learning rate", "", r"learning_rate([_/].*)?"),
    ("Arithmetic", "TFLOP/s of a device", r"tflop_per_s"),
    ("Speed", "per second", r".*_per_s"),
    ("Packing, waiting and use of the devices", "share", r"fill|data_wait|mfu|goodput"),
]
# Labels of metrics whose names are not clear, in the order of their curves.
_LABELS = {
    "loss": "total",
    "loss_term": "term-term",
    "loss_relation": "relation",
    "loss_type": "semantic type",
    "corrupted_farther": "corrupted tails farther away",
    "type_accuracy": "semantic types",
    "mined_positives": "positives",
    "mined_negatives": "negatives",
    "mined_relation_positives": "positives of relations",
    "mined_relation_negatives": "negatives of relations",
    "grad_norm": "all parts",
    "terms_per_s": "terms",
    "tokens_per_s": "tokens",
    "tflop_per_s": "TFLOP/s of a device",
    "fill": "filled tokens",
    "data_wait": "time waiting for data",
    "mfu": "share of the device's peak (MFU)",
    "goodput": "share of the time spent in steps",
}
# The method that answered the mentions, where a run reports several.
_FOUND_BY = {"heldout": "nearest term", "classes": "class"}
_NO_METRICS = ("step", "seconds", "step_seconds", "peak_memory_gb", "eval") + (
    *("compile_s", "save_s", "eval_s", "refresh_s"),
)

Points = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Curve:
    """One quantity over another.

    Attributes:
      name: as the legend has it.
      x, y, errors: n points, x ascending; the standard error of each y, 0 if not known, or none.
      colour, dash: numbers of a colour and of a line style.
    """

    name: str
    x: list[int]
    y: list[float]
    colour: int = 0
    dash: int = 0
    errors: tuple[float, ...] = ()


@dataclass(frozen=True)
class Panel:
    """Curves that share their axes.

    Attributes:
      x_range: least and largest x of the axis.
      each: so many values went into each point, about; 1 for points as they are.
      noisy: long curves are drawn pale, with a running mean on top.
      many: more curves than have colours; drawn alike, and none has a legend.
      from_zero: the y axis begins at 0 or below, not at the least value.
      log, log_x: the axis of y, of x, is logarithmic; 0 has no place on it.
      note: what a reader must know beside the title, or "".
    """

    title: str
    unit: str
    x_name: str
    x_range: tuple[int, int]
    curves: list[Curve]
    each: int = 1
    noisy: bool = False
    many: bool = False
    from_zero: bool = True
    log: bool = False
    log_x: bool = False
    note: str = ""


def curve_of(name: str, points: Points, **look: Any) -> Curve:
    """The curve through points; `look` holds further attributes."""
    return Curve(name, [x for x, _ in points], [y for _, y in points], **look)


def training_panels(lines: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """The panels of a run, evaluations first; none without lines. All begin at step 0.

    Args:
      lines: as `metrics.read_metrics` gives them. What is no finite number is left out.
    """
    if not lines:
        return []
    reach = 0, max(line["step"] for line in lines)
    return [*_evaluation_panels(lines, reach), *_metric_panels(lines, reach)]


def _metric_panels(lines: Sequence[Mapping[str, Any]], reach: tuple[int, int]) -> Iterator[Panel]:
    """The panels of what was logged of the steps: those of PANELS first, then others by name."""
    points: dict[str, list[tuple[int, float]]] = {}
    for line in lines:
        for name, value in line.items():
            if name not in _NO_METRICS and is_number(value):
                points.setdefault(name, []).append((line["step"], float(value)))
    known = list(_LABELS)
    names = sorted(points, key=lambda name: known.index(name) if name in _LABELS else len(known))
    for title, unit, labels in _grouped(names):
        curves, each = _thinned([points[name] for name in labels])
        yield Panel(
            title,
            unit,
            "step",
            reach,
            [
                curve_of(label, drawn, colour=number)
                for number, (label, drawn) in enumerate(zip(labels.values(), curves, strict=True))
            ],
            each=each,
            noisy=title != "Learning rate",  # the rate is exact
            log=title == _GRADIENTS and _spans_much(curves),
        )


def _grouped(names: Sequence[str]) -> list[tuple[str, str, dict[str, str]]]:
    """(title, unit, metric -> label) of each panel: PANELS first, then others by first word.

    A metric that is alone with its first word gives its panel its whole name.
    """
    known: list[tuple[str, str, dict[str, str]]] = [(title, unit, {}) for title, unit, _ in _PANELS]
    others: dict[str, dict[str, str]] = {}
    for name in names:
        fits = (place for place, (*_, form) in enumerate(_PANELS) if re.fullmatch(form, name))
        place = next(fits, None)
        if place is None:
            word, _, rest = name.replace("/", "_").partition("_")
            others.setdefault(word, {})[name] = _spaced(rest) or name
        else:
            short = re.sub(r"^(loss|mined|grad_norm|learning_rate)[_/]|_per_s$", "", name)
            known[place][2][name] = _LABELS.get(name) or _spaced(short) or name
    panels = [panel for panel in known if panel[2]]
    for title, _, labels in panels:
        if list(labels) == ["grad_norm"]:  # there are no others that it is the norm of
            labels["grad_norm"] = title.lower()
    for word, labels in others.items():
        if len(labels) == 1:
            word = _spaced(*labels)
            labels = dict.fromkeys(labels, word)
        panels.append((_capital(word), "", labels))
    return panels


def _spaced(name: str) -> str:
    """The name of a metric in words."""
    return name.replace("_", " ").strip()


def _capital(name: str) -> str:
    """A name that begins with a capital; the rest of it as it is."""
    return name[:1].upper() + name[1:]


def _spans_much(curves: Sequence[Points]) -> bool:
    """Whether a linear axis would hide the smallest of non-negative values."""
    values = [value for points in curves for _, value in points]
    positive = [value for value in values if value > 0]
    return min(values) >= 0 and max(positive, default=0) > _LOG_FROM * min(positive, default=0)


def _evaluation_panels(
    lines: Sequence[Mapping[str, Any]], reach: tuple[int, int]
) -> Iterator[Panel]:
    """acc@k in percent, then all other scores as they are.

    A colour stands for a score, a line style for a benchmark.
    """
    points: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for line in lines:
        for benchmark, score, value in scores_in(line.get("eval"), ""):
            points.setdefault((benchmark, score), []).append((line["step"], value))
    among, classes = evaluated_among(lines), evaluated_among(lines, "classes")
    among = among and f", among {among} terms"
    shares = [key for key in points if re.fullmatch(r"acc@\d+", key[1])]
    others = [key for key in points if key not in shares]
    for title, unit, keys, factor in (
        (f"Evaluation{among}", "mentions, %", shares, 100),
        (f"Other scores{among}" if shares else f"Evaluation{among}", "", others, 1),
    ):
        if not keys:
            continue
        drawn, each = _thinned([points[key] for key in keys])
        benchmarks, scores = (list(dict.fromkeys(part)) for part in zip(*keys, strict=True))
        found_by = _FOUND_BY if classes else {}
        curves = [
            curve_of(
                f"{found_by.get(benchmark, benchmark)} {_spaced(score)}".strip(),
                [(x, factor * y) for x, y in of],
                colour=scores.index(score),
                dash=benchmarks.index(benchmark),
            )
            for (benchmark, score), of in zip(keys, drawn, strict=True)
        ]
        notes = [_QUICK_LOOK] * bool(among) + [_BY_CLASSES.format(count=classes)] * bool(classes)
        note = " ".join(notes) if keys is (shares or others) else ""
        yield Panel(title, unit, "step", reach, curves, each=each, note=note)


def evaluated_among(lines: Iterable[Mapping[str, Any]], what: str = "terms") -> str:
    """How many terms or classes a run searched; "" if unknown."""
    counts = sorted({count for line in lines for count in _counts_in(line.get("eval"), what)})
    return " to ".join(f"{count:,}" for count in dict.fromkeys([*counts[:1], *counts[-1:]]))


def _counts_in(found: Any, what: str) -> Iterator[int]:
    """The counts of this name in an evaluation, at any depth of benchmarks."""
    for name, value in found.items() if isinstance(found, Mapping) else ():
        if isinstance(value, Mapping):
            yield from _counts_in(value, what)
        elif name == what and isinstance(value, int) and not isinstance(value, bool):
            yield value


def scores_in(found: Any, benchmark: str) -> Iterator[tuple[str, str, float]]:
    """(benchmark, score, value) of an evaluation; counts (integers) are left out.

    Args:
      found: score -> value, or benchmark -> such a mapping, at any depth.
      benchmark: what `found` belongs to.
    """
    for name, value in found.items() if isinstance(found, Mapping) else ():
        if isinstance(value, Mapping):
            yield from scores_in(value, f"{benchmark}/{name}" if benchmark else name)
        elif isinstance(value, float) and is_number(value):
            yield benchmark, name, value


def is_number(value: Any) -> bool:
    """Whether a value of a metrics.jsonl can be drawn."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _thinned(curves: Sequence[Points]) -> tuple[list[Points], int]:
    """Curves of one panel thinned to _MOST_POINTS points, and how many values each point averages.

    The steps of all curves are cut into equally long runs; a point is the mean of a curve's values
    in a run, at the run's last step. Short curves stay as they are.
    """
    steps = np.array(sorted({step for points in curves for step, _ in points}))
    if len(steps) <= _MOST_POINTS:
        return list(curves), 1
    ends = np.array([part[-1] for part in np.array_split(steps, _MOST_POINTS)])
    means: list[Points] = []
    for points in curves:
        x, y = np.array(points, np.float64).T
        runs, run_of = np.unique(np.searchsorted(ends, x), return_inverse=True)
        sums, counts = np.bincount(run_of, y), np.bincount(run_of)
        means.append(list(zip(ends[runs].tolist(), (sums / counts).tolist(), strict=True)))
    return means, round(len(steps) / _MOST_POINTS)


def thinned_to(most: int, count: int) -> np.ndarray:
    """At most `most` of 0 .. count - 1, evenly, the first and the last among them: int64."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(np.int64))


def panel_table(panel: Panel, most: int = 25) -> list[tuple[int, list[str]]]:
    """(x, each curve's value or "") at up to `most` x of a panel, evenly, its ends among them."""
    held = [dict(zip(curve.x, curve.y, strict=True)) for curve in panel.curves]
    every = sorted(set().union(*held))
    return [
        (x, [f"{values[x]:.5g}" if x in values else "" for values in held])
        for x in (every[place] for place in thinned_to(most, len(every)))
    ]


# -------------------------------------------------------------------------------------------------
# A file of panels of curves, through which an experiment adds its results to a report.

_FORMAT = 1
_REMEDY = "write it again with `python -m launch.ablation --steps 250 1000` and the same --out"


def write_panels(panels: Sequence[Panel], path: Path) -> None:
    """The panels as JSON, whole or not at all."""
    write_json(path, {"format": _FORMAT, "panels": [dataclasses.asdict(one) for one in panels]})


def read_panels(path: str | Path) -> list[Panel]:
    """The panels of a file of `write_panels`.

    Raises:
      BadInput: it is not one, or has a curve that cannot be drawn.
    """
    found = typed(read_json(Path(path)), dict[str, Any], str(path), _REMEDY)
    if found.get("format") != _FORMAT:
        raise BadInput(
            f"{path}: found the format {found.get('format')!r}, not {_FORMAT}; {_REMEDY}"
        )
    panels = typed(found.get("panels"), list[Panel], str(path), _REMEDY)
    for panel in panels:
        for curve in panel.curves:
            rising = all(a < b for a, b in zip(curve.x, curve.x[1:], strict=False))
            if not curve.x or len(curve.x) != len(curve.y) or not rising:
                raise BadInput(
                    f"{path}: the curve {curve.name!r} of {panel.title!r} has {len(curve.x)} x and "
                    f"{len(curve.y)} y; expected as many of both, x rising; {_REMEDY}"
                )
            if len(curve.errors) not in (0, len(curve.y)) or min(curve.errors, default=0) < 0:
                raise BadInput(
                    f"{path}: the curve {curve.name!r} of {panel.title!r} has {len(curve.y)} y and "
                    f"{len(curve.errors)} errors, the least {min(curve.errors):g}; expected none, "
                    f"or one of each y, 0 or more; {_REMEDY}"
                )
        least = min((curve.x[0] for curve in panel.curves), default=0)
        if not panel.curves or (panel.log_x and least <= 0):
            raise BadInput(
                f"{path}: the panel {panel.title!r} has {len(panel.curves)} curves, the least x is "
                f"{least}; expected some, and on a logarithmic axis x above 0; {_REMEDY}"
            )
    if not panels:
        raise BadInput(f"{path}: has no panel of curves; {_REMEDY}")
    return panels
