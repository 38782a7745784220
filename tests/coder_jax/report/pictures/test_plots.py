"""Plots: PNG files with content, metrics files as they come, matplotlib only when needed."""

import functools
import json
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from coder_jax.report.curves import LABELS, PANELS, Curve, Panel, curve_of, training_panels
from coder_jax.report.pictures import curve_plots, plots
from coder_jax.systems.coder.objective import CoderSystem
from coder_jax.systems.coder_v1.objective import CoderV1System
from coder_jax.systems.groups.group import Group
from data_pipeline.process.errors import BadInput


def metrics_file(path, lines, end="\n"):
    path.write_text("\n".join(json.dumps(line) for line in lines) + end)
    return path


def training_lines(steps=200):
    lines = []
    for step in range(10, steps + 1, 10):
        lines.append({"step": step, "loss": 1 / step, "loss_term": 0.5 / step, "grad_norm": 1.0})
        if step % 50 == 0:
            lines.append({"step": step, "eval": {"heldout": {"acc@1": 0.5, "acc@5": step / 400}}})
    return lines


def pixels(path):
    from matplotlib.image import imread

    return imread(path)


def test_training_curves(tmp_path):
    metrics = metrics_file(tmp_path / "metrics.jsonl", training_lines())
    curve_plots.plot_training(metrics, tmp_path / "few.png")
    few = pixels(tmp_path / "few.png")
    assert few.shape[1] > few.shape[0] > 300
    assert few.std() > 0.02, "something is drawn"
    full = [line | {"terms_per_s": 1e3, "fill": 0.9} for line in training_lines(2000)]
    metrics_file(metrics, [line for line in full if "eval" not in line])
    curve_plots.plot_training(metrics, tmp_path / "many.png")
    assert pixels(tmp_path / "many.png").shape != few.shape, "a panel for each kind of metric"
    assert {path.suffix for path in tmp_path.iterdir()} == {".jsonl", ".png"}


def axis_of(lines, number=-1):
    """One panel of a run, drawn, after its figure was."""
    return axis_of_panel(training_panels(lines)[number])


def axis_of_panel(panel):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with plots.style():
        figure, (axis,) = plots.new_figure(1, 1, width=4.2, height=3.1)
        curve_plots.draw_panel(axis, panel)
        FigureCanvasAgg(figure).draw()
    return axis


def test_panels_of_the_same_curves_have_one_legend_below(tmp_path, monkeypatch):
    """Legends within the panels would lie on their curves; other curves have each its own."""
    drawn = []
    monkeypatch.setattr(curve_plots, "save", lambda figure, _: drawn.append(figure))
    first, second, lone = (curve_of(n, [(1, 0.5), (2, 0.7)], colour=c) for c, n in enumerate("abc"))
    panel = functools.partial(Panel, unit="", x_name="steps", x_range=(1, 2))
    for curves in ([first], [lone]):  # with one of those of the other panel, or with another
        curve_plots.plot_panels(
            [panel("few", curves=curves), panel("all", curves=[first, second])], ""
        )
    below, within = (
        [[text.get_text() for text in legend.get_texts()] for legend in legends if legend]
        for legends in (drawn[0].legends, [axis.get_legend() for axis in drawn[1].axes])
    )
    assert below == [["a", "b"]] and within == [["c"], ["a", "b"]]
    assert not any(axis.get_legend() for axis in drawn[0].axes) and not drawn[1].legends


def ticks(axis):
    """The texts along an axis that are within it."""
    low, high = axis.get_view_interval()
    labels = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
    return [text.get_text() for place, text in labels if low <= place <= high]


@pytest.mark.parametrize(
    "highest, expected",
    [
        (1, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (60, ["0", "10", "20", "30", "40", "50", "60"]),
        (
            4.7e-5,
            [
                "0",
                "1e\N{MINUS SIGN}05",
                "2e\N{MINUS SIGN}05",
                "3e\N{MINUS SIGN}05",
                "4e\N{MINUS SIGN}05",
            ],
        ),
        (0, ["0"]),
    ],
)
def test_ticks_are_round(highest, expected):
    axis = axis_of([{"step": step, "loss": highest} for step in (1, 3)])
    found = ticks(axis.yaxis)
    assert found[: len(expected)] == expected and len(found) <= 8
    assert ticks(axis.xaxis) == ["0", "1", "2", "3"], "whole steps"


def test_curves_are_drawn_where_their_points_are():
    lines = [{"step": step, "loss": 1 / step, "grad_norm": 1.0} for step in (1, 2, 4)]
    lines.append({"step": 0, "eval": {"heldout": {"acc@1": 0.25}}})
    (line,) = axis_of(lines, 1).get_lines()
    assert line.get_xydata().tolist() == [[1, 1], [2, 0.5], [4, 0.25]] and line.get_marker() == "o"
    axis = axis_of(lines, 0)
    assert axis.get_xlim()[0] < 0 < 4 < axis.get_xlim()[1], "the steps of the whole run"
    assert axis.get_lines()[0].get_xydata().tolist() == [[0, 25]]
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["heldout acc@1"]
    assert axis_of(lines).get_legend() is None, "one curve that the title names"


def test_errors_are_bars_about_their_points():
    curves = [
        Curve("seeds", [250, 1000], [70.0, 75.0], 0, errors=(0.5, 0.0)),
        Curve("one", [250, 1000], [60.0, 65.0], 1),
    ]
    panel = Panel("own acc@1", "%", "steps", (250, 1000), curves, log_x=True)
    axis = axis_of_panel(panel)
    (bars,) = axis.collections
    drawn = [bar.tolist() for bar in bars.get_segments() if len(bar)]
    assert drawn == [[[250, 69.5], [250, 70.5]]], "one for each that is known"


def test_gradient_norms_are_drawn_by_part():
    lines = [
        {"step": step, "grad_norm": 2.0, "grad_norm/a": 2.0, "grad_norm/b": 0.01 * (step > 1)}
        for step in (1, 2, 3)
    ]
    axis = axis_of(lines)
    assert axis.get_yscale() == "log"
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["all parts", "a", "b"]
    assert axis.get_ylim()[0] <= 0.01, "0 has no place on the axis, what is above has"


def test_long_curves_have_a_running_mean_on_top():
    lines = [{"step": step, "loss": float(step % 2), "learning_rate": 1.0} for step in range(300)]
    pale, mean = axis_of(lines, 0).get_lines()
    assert (pale.get_alpha(), len(pale.get_xdata())) == (0.25, 300)
    np.testing.assert_allclose(mean.get_ydata(), 0.5)  # of 12 steps
    assert len(axis_of(lines).get_lines()) == 1, "the rate is exact"


def test_metrics_of_a_run_that_was_stopped(tmp_path):
    lines = [{"step": 10, "loss": 3}, {"step": 20, "loss": 2}, {"step": 20, "eval": {"h": {}}}]
    again = [{"step": 20, "loss": 1}]
    path = metrics_file(tmp_path / "m.jsonl", lines + again, end='\n{"step": 30, "lo')
    read = curve_plots.read_metrics(path)
    assert read == [{"step": 10, "loss": 3}, {"step": 20, "loss": 1}, lines[2]]


@pytest.mark.parametrize(
    "content, message",
    [
        ("\n", "m.jsonl: found no metrics"),
        ('{"step": 1}\n{"ste\n', "m.jsonl:2 is not JSON .*; delete the line"),
        ('{"loss": 1}\n', "m.jsonl:1: step is missing; delete the line"),
    ],
)
def test_metrics_that_cannot_be_used(tmp_path, content, message):
    (tmp_path / "m.jsonl").write_text(content)
    with pytest.raises(BadInput, match=message):
        curve_plots.plot_training(tmp_path / "m.jsonl", tmp_path / "out.png")
    with pytest.raises(BadInput, match="absent.jsonl: cannot be read"):
        curve_plots.read_metrics(tmp_path / "absent.jsonl")
    assert not (tmp_path / "out.png").exists()


def test_bars_before_and_after(tmp_path):
    before = {"cls": {"acc@1": 0.4, "acc@5": 0.5}, "mean": {"acc@1": 0.45, "acc@5": 0.55}}
    after = {"cls": {"acc@1": 0.6, "acc@5": 0.7}}
    plots.plot_scores(before, after, tmp_path / "one.png")
    plots.plot_scores(before, before, tmp_path / "two.png")
    one, two = pixels(tmp_path / "one.png"), pixels(tmp_path / "two.png")
    assert abs(two.shape[1] - 2 * one.shape[1]) <= 2, "one panel for each name"
    with pytest.raises(ValueError, match=r"found \['cls'\] before and \['mean'\] after"):
        plots.plot_scores({"cls": {}}, {"mean": {}}, tmp_path / "none.png")


def test_histograms_say_how_well_synonyms_are_told_from_random_pairs(tmp_path, monkeypatch):
    figures = []
    save = plots.save
    monkeypatch.setattr(
        plots, "save", lambda figure, path: figures.append(figure) or save(figure, path)
    )
    # By hand: of 2 x 2 comparisons 0.5 wins over 0.1 and 0.5 (half), 0.9 over both: 3.5 of 4.
    before = (np.array([0.5, 0.9]), np.array([0.1, 0.5]))
    after = (np.array([0.8, 0.9]), np.array([-0.1, 0.3]))
    plots.plot_similarities(before, after, tmp_path / "out.png")
    titles = [axis.get_title(loc="left") for axis in figures[0].axes]
    assert "Before" in titles[0] and "87.5 %" in titles[0]
    assert "After" in titles[1] and "100.0 %" in titles[1]
    assert pixels(tmp_path / "out.png").std() > 0.02


def test_a_folder_that_is_not_there(tmp_path):
    scores = {"cls": {"acc@1": 0.4}}
    with pytest.raises(BadInput, match="absent/out.png: cannot be written"):
        plots.plot_scores(scores, scores, tmp_path / "absent" / "out.png")


def test_matplotlib_is_imported_only_to_draw(repo):
    code = "import sys, coder_jax.report.pictures.plots; print('matplotlib' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=repo, capture_output=True, text=True)
    assert run.stdout.strip() == "False", run.stderr


@pytest.mark.parametrize("system", [CoderSystem(), CoderV1System(type_weight=0.1)])
def test_every_metric_of_every_system_has_a_curve(system):
    """In a panel of its kind, under a name in plain words or that of a part."""
    terms = 4 if isinstance(system, CoderSystem) else 6
    group = Group(
        vectors=jnp.ones((terms, 4)),
        concepts=jnp.arange(terms),
        relations=jnp.zeros(2, int),
        queries=jnp.ones((2, 4)),
        types=jnp.zeros(terms, int),
        type_logits=jnp.ones((terms, 3)),
    )
    metrics = {name: float(value) for name, value in system.group_loss(group)[1].items()}
    assert len(metrics) >= 4
    parts = system.parts()
    metrics |= dict.fromkeys(["loss", "grad_norm", *(f"grad_norm/{part}" for part in parts)], 1.0)
    panels = training_panels([{"step": 1, **metrics}])
    assert {panel.title for panel in panels} <= {title for title, *_ in PANELS}, "all are known"
    names = [curve.name for panel in panels for curve in panel.curves]
    assert len(names) == len(metrics) and set(names) <= {*LABELS.values(), *parts}
