"""The HTML page of a report, as one file without external resources."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from coder_jax.evaluation.results import Table
from coder_jax.report.curves import Panel, panel_table
from coder_jax.report.dictionary import MapFigure
from coder_jax.report.model_answers import CandidateAnswers, ClassAnswers
from coder_jax.report.pictures import (
    LEAST_SQUARES,
    RelationFigure,
    cutoffs_svg,
    distribution_svg,
    heat_map_svg,
    panel_svg,
    spectrum_panel,
)
from coder_jax.report.results import AnswersShown, ComparedAnswer, some_rows
from data_pipeline.files.whole import written_whole
from data_pipeline.process import BadInput

# -------------------------------------------------------------------------------------------------
# Self-contained HTML files: how one is filled and written.
#
# Strings of users and terminologies reach a page in three ways only: escaped by Jinja; in pictures,
# escaped by a writer of XML (`report.pictures`); or as data, where no term can end a script or
# begin an element: JSON in which <, > and & are written as \u003c and so on (Jinja's `tojson`), or
# base64. A content security policy lets nothing run but the page's own script, by its hash, and
# lets nothing be fetched.

_FOLDERS = "coder_jax.report"  # the package in which the folders of templates are
_COLOURS = "page"  # the folder with the colours of all pages, light and dark


def fill(folder: str, template: str, style: str, scripts: Sequence[str], **values: Any) -> str:
    """A page as HTML.

    Args:
      folder: where the files are, inside `coder_jax/report`.
      template: it has the places style, script, script_hash, and those of `values`.
      style: comes after the colours.
      scripts: become one script, in this order.
      values: what the template shows.
    """
    script = "".join(_text(folder, name) for name in scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _templates(folder)
        .get_template(template)
        .render(
            style=_text(_COLOURS, "colours.css") + _text(folder, style),
            script=script,
            script_hash=f"sha256-{digest}",
            **values,
        )
    )


@functools.cache
def _templates(folder: str) -> Environment:
    """The templates of a folder, each of which is compiled once."""
    environment = Environment(
        loader=PackageLoader(_FOLDERS, folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    compact = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}
    environment.policies["json.dumps_kwargs"] = compact
    return environment


def _text(folder: str, name: str) -> str:
    return (resources.files(_FOLDERS) / folder / name).read_text(encoding="utf-8")


def write_html(page: str, out: Path, option: str = "--out") -> int:
    """Writes a page to `out` atomically; returns its size. BadInput if it cannot be written."""
    content = page.encode()
    try:
        with written_whole(out) as unfinished:
            unfinished.write_bytes(content)
    except OSError as error:
        raise BadInput(
            f"{out}: cannot be written ({error.strerror}); give another {option}"
        ) from error
    return len(content)


# -------------------------------------------------------------------------------------------------
# The content of a report's page.

_HERE = "page"  # the folder of the template, the style and the script


@dataclass(frozen=True)
class LeftOut:
    """A part that the report lacks: the reason, and the command that provides it."""

    part: str
    why: str
    command: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """The content of a page; parts that are None or empty are left out.

    Attributes:
      title: such as the encoder's name.
      answers: scores before and after.
      facts: (what, value).
      tables: scores, published rows among them.
      given: what mentions were answered, right and wrong.
      panels: training curves.
      learning: scores of systems over the lengths of their trainings.
      by_classes: what a model with classes answers to mentions.
      by_candidates: candidates of mentions, and how they are ranked.
      by_concept, by_type: maps of terms.
      relations: spectra and similarities of relation matrices; a heat map of LEAST_SQUARES or more.
      explorer: as `dictionary.explorer_data` gives it.
      explorer_note: which terms these are.
      left_out: the parts that are not there.
    """

    title: str
    answers: Sequence[ComparedAnswer] = ()
    facts: Sequence[tuple[str, str]] = ()
    tables: Sequence[Table] = ()
    given: Sequence[AnswersShown] = ()
    panels: Sequence[Panel] = ()
    learning: Sequence[Panel] = ()
    by_classes: ClassAnswers | None = None
    by_candidates: CandidateAnswers | None = None
    by_concept: MapFigure | None = None
    by_type: MapFigure | None = None
    relations: RelationFigure | None = None
    explorer: dict[str, Any] | None = None
    explorer_note: str = ""
    left_out: Sequence[LeftOut] = field(default=())


def _render(report: Report) -> str:
    """The page as HTML."""
    relations = report.relations
    drawn = relations if relations and len(relations.labels) >= LEAST_SQUARES else None
    given = [
        (
            shown,
            distribution_svg(shown, f"similarities-{number}"),
            [
                (language, table, cutoffs_svg(table, f"cutoffs-{number}-{place}"), some_rows(table))
                for place, (language, table) in enumerate(shown.cutoffs.items())
            ],
        )
        for number, shown in enumerate(report.given)
    ]
    return fill(
        _HERE,
        "report.html",
        "report.css",
        ["report.js"],
        report=report,
        maps=[figure for figure in (report.by_concept, report.by_type) if figure],
        panels=_figures(report.panels, "panel"),
        learning=_figures(report.learning, "learning"),
        given=given,
        right=report.by_classes and report.by_classes.right(),
        published=any(row.published for _, rows in report.tables for row in rows),
        spectrum=relations and panel_svg(spectrum_panel(relations), "spectrum", wide=True),
        heat_map=drawn and heat_map_svg(drawn),
        heat_data=drawn and {"labels": drawn.labels, "values": drawn.similarity.round(3).tolist()},
    )


def _figures(
    panels: Sequence[Panel], name: str
) -> list[tuple[Panel, Markup, list[tuple[int, list[str]]]]]:
    """Each panel with its picture and its table of numbers.

    Args:
      name: what the names of these pictures begin with, and no other's.
    """
    return [
        (panel, panel_svg(panel, f"{name}-{number}"), panel_table(panel))
        for number, panel in enumerate(panels)
    ]


def write_page(report: Report, out: Path) -> int:
    """Writes the page to `out` atomically; returns its size. BadInput if it cannot be written."""
    return write_html(_render(report), out)
