"""Plots: PNG files with content, metrics files as they come, matplotlib only when needed."""

import dataclasses
import functools
import json
import re
import subprocess
import sys
from xml.etree import ElementTree

import jax.numpy as jnp
import numpy as np
import pytest
from evaluating import ENCODER, write_toy

from coder_jax.evaluation.record import EvaluationRecord
from coder_jax.report import pictures
from coder_jax.report.curves import _LABELS, _PANELS, Curve, Panel, curve_of, training_panels
from coder_jax.report.pictures import (
    _VARIABLES,
    compare_relations,
    heat_map_svg,
    panel_svg,
    spectrum_panel,
)
from coder_jax.systems.coder import CoderSystem
from coder_jax.systems.coder_v1 import CoderV1System
from coder_jax.systems.group_losses import Group
from data_pipeline.process import BadInput


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
    pictures.plot_training(metrics, tmp_path / "few.png")
    few = pixels(tmp_path / "few.png")
    assert few.shape[1] > few.shape[0] > 300
    assert few.std() > 0.02, "something is drawn"
    full = [line | {"terms_per_s": 1e3, "fill": 0.9} for line in training_lines(2000)]
    metrics_file(metrics, [line for line in full if "eval" not in line])
    pictures.plot_training(metrics, tmp_path / "many.png")
    assert pixels(tmp_path / "many.png").shape != few.shape, "a panel for each kind of metric"
    assert {path.suffix for path in tmp_path.iterdir()} == {".jsonl", ".png"}


def axis_of(lines, number=-1):
    """One panel of a run, drawn, after its figure was."""
    return axis_of_panel(training_panels(lines)[number])


def axis_of_panel(panel):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with pictures._style():
        figure, (axis,) = pictures._new_figure(1, 1, width=4.2, height=3.1)
        pictures._draw_panel(axis, panel)
        FigureCanvasAgg(figure).draw()
    return axis


def test_panels_of_the_same_curves_have_one_legend_below(tmp_path, monkeypatch):
    """Legends within the panels would lie on their curves; other curves have each its own."""
    drawn = []
    monkeypatch.setattr(pictures, "_save", lambda figure, _: drawn.append(figure))
    first, second, lone = (curve_of(n, [(1, 0.5), (2, 0.7)], colour=c) for c, n in enumerate("abc"))
    panel = functools.partial(Panel, unit="", x_name="steps", x_range=(1, 2))
    for curves in ([first], [lone]):  # with one of those of the other panel, or with another
        pictures.plot_panels(
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
    read = pictures.read_metrics(path)
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
        pictures.plot_training(tmp_path / "m.jsonl", tmp_path / "out.png")
    with pytest.raises(BadInput, match="absent.jsonl: cannot be read"):
        pictures.read_metrics(tmp_path / "absent.jsonl")
    assert not (tmp_path / "out.png").exists()


def test_bars_before_and_after(tmp_path, monkeypatch):
    figures = []
    save = pictures._save
    monkeypatch.setattr(
        pictures, "_save", lambda figure, path: figures.append(figure) or save(figure, path)
    )
    before, after = {"acc@1": 0.4, "acc@5": 0.5}, {"acc@1": 0.6, "acc@5": 0.7}
    pictures._plot_scores("held-out", before, after, tmp_path / "out.png")
    (axis,) = figures[0].axes
    heights = [[bar.get_height() for bar in bars] for bars in axis.containers]
    assert heights == [pytest.approx([40, 50]), pytest.approx([60, 70])]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["acc@1", "acc@5"]
    assert axis.get_title(loc="left") == "held-out"
    assert pixels(tmp_path / "out.png").std() > 0.02


def test_histograms_say_how_well_synonyms_are_told_from_random_pairs(tmp_path, monkeypatch):
    figures = []
    save = pictures._save
    monkeypatch.setattr(
        pictures, "_save", lambda figure, path: figures.append(figure) or save(figure, path)
    )
    # By hand: of 2 x 2 comparisons 0.5 wins over 0.1 and 0.5 (half), 0.9 over both: 3.5 of 4.
    before = (np.array([0.5, 0.9]), np.array([0.1, 0.5]))
    after = (np.array([0.8, 0.9]), np.array([-0.1, 0.3]))
    pictures._plot_similarities(before, after, tmp_path / "out.png")
    titles = [axis.get_title(loc="left") for axis in figures[0].axes]
    assert "Before" in titles[0] and "87.5 %" in titles[0]
    assert "After" in titles[1] and "100.0 %" in titles[1]
    assert pixels(tmp_path / "out.png").std() > 0.02


def test_a_folder_that_is_not_there(tmp_path):
    scores = {"acc@1": 0.4}
    with pytest.raises(BadInput, match="absent/out.png: cannot be written"):
        pictures._plot_scores("cls", scores, scores, tmp_path / "absent" / "out.png")


@pytest.mark.slow
def test_matplotlib_is_imported_only_to_draw(repo):
    code = "import sys, coder_jax.report.pictures; print('matplotlib' in sys.modules)"
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
    assert {panel.title for panel in panels} <= {title for title, *_ in _PANELS}, "all are known"
    names = [curve.name for panel in panels for curve in panel.curves]
    assert len(names) == len(metrics) and set(names) <= {*_LABELS.values(), *parts}


# -------------------------------------------------------------------------------------------------
# Pictures of what training gave on held-out terms.

TOY = ["heart attack", "high blood pressure", "kidney stone"]
FIRST = ["myocardial infarction", "hypertension", "nephrolithiasis"]


class Encoder:
    """Vectors at random, but those of synonyms alike."""

    def __init__(self, noise):
        rng = np.random.default_rng(0)
        middles = rng.normal(size=(3, 8))
        self.vectors = dict(zip(TOY, middles, strict=True))
        self.vectors |= dict(zip(FIRST, middles + noise * rng.normal(size=(3, 8)), strict=True))

    def encode(self, terms):
        rows = np.array([self.vectors[term] for term in terms])
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def mentions(tmp_path):
    path = write_toy(tmp_path) / "heldout" / "mentions.tsv"
    kept = [line for line in path.read_text().splitlines() if not line.startswith("novel")]
    path.write_text("\n".join(kept) + "\n")
    return path


def test_pairs_of_synonyms(mentions):
    assert pictures._heldout_pairs(mentions) == (TOY, FIRST)


def test_scores_and_similarities_before_and_after(mentions, tmp_path, monkeypatch):
    drawn = {}
    for name in ("_plot_scores", "_plot_similarities"):
        monkeypatch.setattr(pictures, name, lambda *of, name=name, **_: drawn.update({name: of}))
    scored = []
    for share, noise in ((0.25, 5.0), (0.5, 0.1)):
        parts = {"benchmark": "held-out", "kind": "normalization", "path": "", "content_hash": ""}
        scores = {"acc@1": share, "acc@5": None, "mrr": 0.5}
        record = EvaluationRecord(
            **parts, scores=scores, counts={}, scoring={}, encoder=dataclasses.replace(ENCODER)
        )
        scored.append((Encoder(noise), record))
    pictures.plot_heldout(tmp_path, mentions, *scored)
    name, before, after, path = drawn["_plot_scores"]
    assert (name, path) == ("held-out", tmp_path / "scores.png")
    assert before == {"acc@1": 0.25, "acc@5": 0.0} and after == {"acc@1": 0.5, "acc@5": 0.0}
    (_, _), (near, far), path = drawn["_plot_similarities"]
    assert path == tmp_path / "similarities.png"
    assert near.shape == far.shape == (3,) and near.min() > 0.9 > far.max(), "others' synonyms"


# -------------------------------------------------------------------------------------------------
# Pictures of a report as SVG: what the page can have of them, their words, and their ids.

LONG = "RO|biological_process_has_initiator_chemical_or_drug"


def relations(labels=(LONG, "RO|<u> & $x^$", "痛み")):
    rng = np.random.default_rng(0)
    return compare_relations(np.eye(5) + rng.normal(size=(len(labels), 5, 5)), labels)


def a_panel(scale=1.0):
    lines = [{"step": s, "loss": scale / s, "loss_</title><b>": 0.5} for s in (1, 2, 3)]
    return training_panels(lines)[0]


def pictures_of_svg():
    figure = relations()
    return {
        "panel-0": panel_svg(a_panel(), "panel-0"),
        "panel-1": panel_svg(a_panel(), "panel-1"),
        "spectrum": panel_svg(spectrum_panel(figure), "spectrum", wide=True),
        "heat": heat_map_svg(figure),
    }


def test_the_page_s_colours_are_matplotlib_s_in_light(repo):
    css = (repo / "coder_jax/report/page/colours.css").read_text(encoding="utf-8")
    light = dict(re.findall(r"--([\w-]+): (#\w{6});", css.split("@media")[0]))
    assert {name: light[name] for name in pictures._COLOURS} == pictures._COLOURS
    assert light["plus"] == pictures._COLOURS["c0"], "what a heat map's positive squares have"


@pytest.mark.parametrize("name", ["panel-0", "spectrum", "heat"])
def test_a_picture_needs_nothing_and_follows_the_page(name):
    text = pictures_of_svg()[name]
    assert not re.search(r"https?:|url\(|<style|<script|<metadata|xmlns|font-family|DejaVu", text)
    colours = re.findall(r"(?:fill|stroke):([^;\"]+)", text)
    assert set(colours) <= {"none", *_VARIABLES.values()} and len(set(colours)) >= 3
    root = ElementTree.fromstring(text)
    assert root.get("role") == "img" and root.get("aria-label")
    assert set(root.attrib) - {"width", "height"} == {
        "id",
        "class",
        "viewBox",
        "role",
        "aria-label",
    }


def test_ids_are_of_one_picture_and_the_same_each_time():
    one, again = pictures_of_svg(), pictures_of_svg()
    assert one == again
    roots = [ElementTree.fromstring(text) for text in one.values()]
    ids = [element.get("id") for root in roots for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids)) > len(roots), "markers have ids, too"
    for name, root in zip(one, roots, strict=True):
        own = {element.get("id") for element in root.iter()}
        shown = {use.get("href") for use in root.iter("use")}
        assert all(href.startswith(f"#{name}-") and href[1:] in own for href in shown)
        assert (len(shown) > 0) == name.startswith("panel")


def test_words_are_text_and_never_markup():
    root = ElementTree.fromstring(panel_svg(a_panel(), "panel-0"))
    assert root.get("aria-label").startswith("Loss. total: 1 at step 1, 0.33333 at 3; ")
    texts = [text.text for text in root.iter("text")]
    assert {"1", "2", "3", "step", "total", "</title><b>"} <= set(texts)
    assert [title.text for title in root.iter("title")] == [
        "total: 1 at step 1, 0.33333 at 3",
        "</title><b>: 0.5 at step 1, 0.5 at 3",
    ]
    assert len(root.findall(".//g[@class='curve']")) == 2
    assert "<b>" not in panel_svg(a_panel(), "panel-0")


def places(path):
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", path)]
    return np.array(numbers).reshape(-1, 2)


def test_a_curve_goes_through_its_points():
    """1, 1/2 and 1/3 at the steps 1, 2 and 3, by the ticks of the picture itself."""
    root = ElementTree.fromstring(panel_svg(a_panel(), "panel-0"))
    curve = places(root.find(".//g[@class='curve']/path").get("d"))
    x, y = {}, {}
    for text in root.iter("text"):
        if text.text in ("1", "2", "3") and "middle" in text.get("style"):
            x[float(text.text)] = float(text.get("x"))
        elif "end" in text.get("style") and text.text in ("0", "1"):
            y[float(text.text)] = float(text.get("y"))
    np.testing.assert_allclose(curve[:, 0], [x[1], x[2], x[3]], atol=0.02)
    heights = (y[0] - y[1]) * np.array([1, 1 / 2, 1 / 3])
    np.testing.assert_allclose(curve[0, 1] - curve[:, 1], heights - heights[0], atol=0.02)


def test_spectra_are_told_apart_by_pointing():
    figure = relations()
    root = ElementTree.fromstring(panel_svg(spectrum_panel(figure), "spectrum"))
    curves = root.findall(".//g[@class='curve many']")
    for curve, label, values in zip(curves, figure.labels, figure.spectrum, strict=True):
        said = f"{label}: {values[0]:.5g} at rank 1, {values[-1]:.5g} at 5"
        assert curve.find("title").text == said
    assert not set(figure.labels) & {text.text for text in root.iter("text")}, "no legend"


def test_heat_map_has_a_square_for_each_cosine():
    figure = relations()
    root = ElementTree.fromstring(heat_map_svg(figure))
    squares = root.findall(".//g[@class='cells']/path")
    assert len(squares) == 9
    corners = np.array([places(square.get("d")).min(axis=0) for square in squares])
    np.testing.assert_allclose(
        corners - corners[0], [(36 * c, 36 * r) for r in range(3) for c in range(3)], atol=0.02
    )
    for square, cosine in zip(squares, figure.similarity.flat, strict=True):
        style = dict(part.split(":") for part in square.get("style").split(";"))
        assert style["fill"] == ("var(--c0)" if cosine > 0 else "var(--minus)")
        opacity = min(1, abs(cosine) / figure.scale)
        assert float(style.get("fill-opacity", 1)) == pytest.approx(opacity, abs=0.02)
    for kind in ("row", "column"):
        names = [root.find(f".//g[@data-{kind}='{number}']") for number in range(3)]
        assert [name.find("title").text for name in names] == figure.labels
        shown = {name.find("text").text for name in names}
        assert any(one.endswith("…") and LONG.startswith(one[:-1]) for one in shown)
        assert {"RO|<u> & $x^$", "痛み"} < shown


@pytest.mark.parametrize("count, cell", [(3, 36), (12, 15), (20, 9.75)])
def test_squares_of_few_relations_are_large(count, cell):
    text = heat_map_svg(relations([f"RO|r{number}" for number in range(count)]))
    squares = ElementTree.fromstring(text).findall(".//g[@class='cells']/path")
    width = np.ptp(places(squares[0].get("d"))[:, 0])
    assert width == pytest.approx(cell, abs=0.02) and len(squares) == count**2


def test_untouched_relations_have_no_colour():
    figure = compare_relations(np.stack([np.eye(4)] * 3), ["a", "b", "c"])
    squares = ElementTree.fromstring(heat_map_svg(figure)).findall(".//g[@class='cells']/path")
    assert len(squares) == 9 and all("fill-opacity:0" in one.get("style") for one in squares)
