"""The parts of a report in, one HTML file out that needs neither network nor other files.

Strings of users and terminologies reach the page in two ways only: escaped by Jinja, or as JSON in
which <, > and & are written as \\u003c and so on (Jinja's `tojson`), so that no term can end a
script or begin an element. A content security policy lets nothing run but the page's own script, by
its hash, and lets nothing be fetched.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from coder_jax.evaluation.tables import Table
from coder_jax.report.curves import Panel, panel, thinned_to
from coder_jax.report.heat_map import HeatMap
from coder_jax.report.maps import MapFigure
from coder_jax.report.relation_matrices import RelationFigure
from data_pipeline.files.whole_files import written_whole
from data_pipeline.process.errors import BadInput

PAGE = "page"  # the folder of the template, the style and the script
SPECTRUM_POINTS = 96


@dataclass(frozen=True)
class LeftOut:
    """A part that the report does not have: why, and what to type for it."""

    part: str
    why: str
    command: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a page shows; what is None or empty is left out.

    Attributes:
      title: the encoder's name.
      facts: (what, value).
      tables: scores, published rows among them.
      panels: training curves.
      by_concept, by_type: maps of terms.
      relations: spectra and similarities of relation matrices.
      explorer: as `neighbours.explorer_data` gives it.
      explorer_note: which terms these are.
      left_out: the parts that are not there.
    """

    title: str
    facts: Sequence[tuple[str, str]] = ()
    tables: Sequence[Table] = ()
    panels: Sequence[Panel] = ()
    by_concept: MapFigure | None = None
    by_type: MapFigure | None = None
    relations: RelationFigure | None = None
    explorer: dict[str, Any] | None = None
    explorer_note: str = ""
    left_out: Sequence[LeftOut] = field(default=())


def render(report: Report) -> str:
    """The page as HTML."""
    environment = Environment(
        loader=PackageLoader("coder_jax.report", PAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    compact = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}
    environment.policies["json.dumps_kwargs"] = compact
    folder = resources.files("coder_jax.report") / PAGE
    style, script = (
        (folder / name).read_text(encoding="utf-8") for name in ("report.css", "report.js")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    spectra = [] if report.relations is None else [spectrum_panel(report.relations)]
    return environment.get_template("report.html").render(
        report=report,
        style=style,
        script=script,
        script_hash=f"sha256-{digest}",
        maps=[figure for figure in (report.by_concept, report.by_type) if figure],
        spectra=spectra,
        heat_map=None if report.relations is None else HeatMap.of(report.relations),
        panel_data=[panel_json(one) for one in (*report.panels, *spectra)],
    )


def write_page(report: Report, out: Path) -> None:
    """Writes the page to `out`, whole or not at all; BadInput where that cannot be."""
    text = render(report)
    try:
        with written_whole(out) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(
            f"{out}: cannot be written ({error.strerror}); give another --out"
        ) from error


def spectrum_panel(relations: RelationFigure) -> Panel:
    """Singular values over their rank, a curve for each relation."""
    ranks = thinned_to(SPECTRUM_POINTS, relations.spectrum.shape[1])
    curves = [
        (label, list(zip((ranks + 1).tolist(), values[ranks].tolist(), strict=True)))
        for label, values in zip(relations.labels, relations.spectrum, strict=True)
    ]
    return panel("Singular values", "", curves, "rank", (ranks + 1).tolist(), from_zero=False)


def panel_json(one: Panel) -> dict[str, Any]:
    """What hovering over a panel needs."""
    return {
        "xName": one.x_name,
        "x": [one.x.low, one.x.high],
        "y": [one.y.low, one.y.high],
        "curves": [{"name": c.name, "x": c.x, "y": c.y} for c in one.curves],
    }
