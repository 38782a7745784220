"""Learning curves: a panel for each score, a line for each system."""

import pytest

from coder_jax.report.curves import read_panels
from launch.experiment import mean_rows
from launch.learning_curves import _panels_of, plot_curves


def test_a_curve_has_a_point_for_each_length_and_the_start_is_a_level():
    rows = mean_rows(
        [
            {
                "system": system,
                "steps": steps,
                "pooling": "cls",
                "en acc@1": score,
                "sim spearman": s,
            }
            for system, steps, score, s in (
                ("start", 0, 0.6, 0.4),
                ("coder", 1000, 0.8, None),
                ("coder", 250, 0.7, 0.5),
                ("coder", 250, 0.72, 0.5),
            )
        ],
        ("system", "steps", "pooling"),
    )
    names, sim = _panels_of(rows)
    assert (names.title, names.unit, names.x_range) == ("en acc@1", "%", (250, 1000))
    assert names.log_x and not _panels_of([row | {"pooling": "mean"} for row in rows])
    assert [(curve.name, curve.x) for curve in names.curves] == [
        ("start", [250, 1000]),
        ("coder", [250, 1000]),
    ]
    assert [curve.y for curve in names.curves] == [[60, 60], pytest.approx([71, 80])]
    # Of 70 and 72 the mean has a standard error of 1; equal values and single ones have none.
    assert [curve.errors for curve in names.curves] == [(0, 0), pytest.approx((1, 0))]
    assert names.note == "By [CLS]. Bars: standard errors of the means of several seeds."
    assert (sim.unit, [curve.y for curve in sim.curves]) == ("", [[0.4, 0.4], [0.5]])
    assert sim.note == "By [CLS].", "none is known"


def test_a_system_has_its_colour_in_all_panels():
    rows = [
        {"system": system, "steps": steps, "pooling": "cls", "en acc@1": (0.5, None)}
        | {"sim spearman": (0.4, None) if system == "b" else None}
        for system in ("a", "b")
        for steps in (250, 1000)
    ]
    names, sim = _panels_of(rows)
    assert [(curve.name, curve.colour) for curve in names.curves] == [("a", 0), ("b", 1)]
    assert [(curve.name, curve.colour) for curve in sim.curves] == [("b", 1)]


def test_a_score_that_is_nowhere_defined_has_no_panel(tmp_path):
    undefined = {"sim spearman": None, "en acc@1": (0.5, None)}
    rows = [
        {"system": "coder", "steps": steps, "pooling": "cls", **undefined} for steps in (250, 1000)
    ]
    assert [panel.title for panel in _panels_of(rows)] == ["en acc@1"]
    plot_curves(rows, tmp_path)
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert read_panels(tmp_path / "curves.json") == _panels_of(rows), "for a report"
