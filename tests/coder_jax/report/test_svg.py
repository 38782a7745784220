"""Pictures of a report as SVG: what the page can have of them, their words, and their ids."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from coder_jax.report.curves import training_panels
from coder_jax.report.page.svg import VARIABLES, heat_map_svg, panel_svg
from coder_jax.report.pictures import plots
from coder_jax.report.relation_matrices import compare_relations, spectrum_panel

LONG = "RO|biological_process_has_initiator_chemical_or_drug"


def relations(labels=(LONG, "RO|<u> & $x^$", "痛み")):
    rng = np.random.default_rng(0)
    return compare_relations(np.eye(5) + rng.normal(size=(len(labels), 5, 5)), labels)


def a_panel(scale=1.0):
    lines = [{"step": s, "loss": scale / s, "loss_</title><b>": 0.5} for s in (1, 2, 3)]
    return training_panels(lines)[0]


def pictures():
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
    assert {name: light[name] for name in plots.COLOURS} == plots.COLOURS
    assert light["plus"] == plots.COLOURS["c0"], "what a heat map's positive squares have"


@pytest.mark.parametrize("name", ["panel-0", "spectrum", "heat"])
def test_a_picture_needs_nothing_and_follows_the_page(name):
    text = pictures()[name]
    assert not re.search(r"https?:|url\(|<style|<script|<metadata|xmlns|font-family|DejaVu", text)
    colours = re.findall(r"(?:fill|stroke):([^;\"]+)", text)
    assert set(colours) <= {"none", *VARIABLES.values()} and len(set(colours)) >= 3
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
    one, again = pictures(), pictures()
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
