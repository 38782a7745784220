"""Pictures of matplotlib as SVG within the page: curves, histograms, the heat map of relations.

What is written here fetches nothing and has no style of its own but for sizes: colours are the
page's (`var(--c0)`), so that they follow the reader's setting, and text stays text in the page's
font. The same picture gives the same text, and ids are those of one picture alone.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
from markupsafe import Markup

from coder_jax.mapping.cutoffs import CutoffTable
from coder_jax.report.curves import Panel
from coder_jax.report.pictures import plots
from coder_jax.report.pictures.curve_plots import draw_panel
from coder_jax.report.relation_matrices import RelationFigure
from coder_jax.report.results import AnswersShown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LETTERS = 36  # of a name beside the heat map; the rest of it shows when one points at it
CELL = 9.75  # points: 13 pixels of a screen; larger ones, of few relations, fill LEAST_WIDTH
LEAST_WIDTH, LARGEST_CELL = 180.0, 36.0  # points
VARIABLES = {colour: f"var(--{name})" for name, colour in plots.COLOURS.items()}


def panel_svg(panel: Panel, name: str, *, wide: bool = False) -> Markup:
    """A panel of curves; each tells its name and its ends when one points at it.

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
    with plots.style():
        width, height = (9.6, 3.6) if wide else (4.2, 3.1)
        figure, (axis,) = plots.new_figure(1, 1, width=width, height=height)
        draw_panel(axis, panel)
        return svg_of(figure, name, f"{panel.title}. {'; '.join(shown)}", told)


def distribution_svg(given: AnswersShown, name: str) -> Markup:
    """How many right and wrong answers have which similarity."""
    counts = {"right": given.right, "wrong": given.wrong}
    told = {f"curve-{n}": {"class": "curve", "title": one} for n, one in enumerate(counts)}
    label = f"Similarities of {sum(given.right):,} right and {sum(given.wrong):,} wrong answers"
    with plots.style():
        figure, (axis,) = plots.new_figure(1, 1, width=4.2, height=3.1)
        plots.draw_distribution(axis, given.low, given.high, counts)
        return svg_of(figure, name, label, told)


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
    with plots.style():
        figure, (axis,) = plots.new_figure(1, 1, width=4.2, height=3.1)
        plots.draw_cutoffs(axis, table)
        return svg_of(figure, name, label, told)


def heat_map_svg(relations: RelationFigure) -> Markup:
    """The cosines of relations as squares; the full colour stands for `relations.scale`.

    The squares are the children of `.cells`, row by row; names have `data-row` or `data-column`.
    """
    told = {
        f"{kind}-{number}": {f"data-{kind}": str(number), "title": label}
        for kind in ("row", "column")
        for number, label in enumerate(relations.labels)
    }
    with plots.style():
        figure = draw_heat_map(relations)
        told["cells"] = {"class": "cells"}
        return svg_of(figure, "heat", "Cosines between relations", told, tight=True)


def draw_heat_map(relations: RelationFigure) -> Figure:
    """A square for each cosine of two relations; names at the left and above.

    The full colour stands for `relations.scale`. The gid of the squares, row by row, is `cells`,
    those of the names are `row-i` and `column-i`.
    """
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    count = len(relations.labels)
    plus, minus = plots.COLOURS["c0"], plots.COLOURS["minus"]
    stops = [(0.0, minus, 1.0), (0.5, minus, 0.0), (0.5, plus, 0.0), (1.0, plus, 1.0)]
    ramp = [(place, to_rgba(colour, alpha)) for place, colour, alpha in stops]
    colours = LinearSegmentedColormap.from_list("cosines", ramp, N=512)
    size = count * min(max(CELL, LEAST_WIDTH / count), LARGEST_CELL) / 72
    figure, (axis,) = plots.new_figure(1, 1, width=size, height=size)
    figure.set_layout_engine("none")
    axis.set_position((0, 0, 1, 1))
    limit = relations.scale
    mesh = axis.pcolormesh(relations.similarity, cmap=colours, vmin=-limit, vmax=limit)
    mesh.set(gid="cells", clip_on=False)
    names = [one if len(one) <= LETTERS else one[: LETTERS - 1] + "…" for one in relations.labels]
    axis.xaxis.tick_top()
    places = np.arange(count) + 0.5
    axis.set_xticks(places, names, rotation=90, fontsize=8)
    axis.set_yticks(places, names, fontsize=8)
    for kind, labels in (("row", axis.get_yticklabels()), ("column", axis.get_xticklabels())):
        for number, label in enumerate(labels):
            label.set(gid=f"{kind}-{number}", color=plots.TEXT)
    axis.invert_yaxis()
    axis.grid(False)
    axis.set_frame_on(False)
    return figure


def svg_of(
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
        # The page's font has the letters that matplotlib's own, which only measures, lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        figure.savefig(
            written, format="svg", metadata={"Date": None}, bbox_inches="tight" if tight else None
        )
    found = ElementTree.fromstring(written.getvalue())
    root = cleaned(found, name, told)
    size = {key: found.attrib[key] for key in ("width", "height") if tight}
    box = found.attrib["viewBox"]
    root.attrib = {"id": name, "class": "drawn", **size, "viewBox": box, "role": "img"}
    root.attrib["aria-label"] = label
    return Markup(ElementTree.tostring(root, encoding="unicode", short_empty_elements=True))


def cleaned(
    element: ElementTree.Element, name: str, told: Mapping[str, Mapping[str, str]]
) -> ElementTree.Element:
    """An element of matplotlib's SVG and all in it, as a page can have it; see the module."""
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
            value = plain_style(value)
        elif key == "d":
            value = shorter(" ".join(value.split()))
            if "C" not in value:  # no Bézier curve: what follows M are lines
                value = value.replace("L ", "")
        elif key in ("x", "y", "transform"):
            value = shorter(value)
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
            new.append(cleaned(child, name, told))
    return new


def plain_style(style: str) -> str:
    """Declarations of a style without fonts, and with the page's colours."""
    kept = []
    for declaration in style.split(";"):
        key, _, value = (part.strip() for part in declaration.partition(":"))
        if key in ("font-family", "font-style", "font-weight"):
            continue
        kept.append(f"{key}:{VARIABLES.get(value, shorter(value))}")
    return ";".join(kept)


def shorter(numbers: str) -> str:
    """Numbers in a text to a hundredth of a point, which no screen shows."""
    return re.sub(
        r"\d+\.\d+", lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), numbers
    )
