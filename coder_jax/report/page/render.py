"""The page of a report: one HTML file that needs neither network nor other files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

from coder_jax.evaluation.results.cells import Table
from coder_jax.report.answers import Answer
from coder_jax.report.curves import Panel, table_of
from coder_jax.report.dictionary.candidate_answers import CandidateAnswers
from coder_jax.report.dictionary.class_answers import ClassAnswers
from coder_jax.report.dictionary.maps import MapFigure
from coder_jax.report.page.offline import fill, write_html
from coder_jax.report.page.svg import cutoffs_svg, distribution_svg, heat_map_svg, panel_svg
from coder_jax.report.relation_matrices import LEAST_SQUARES, RelationFigure, spectrum_panel
from coder_jax.report.results import AnswersShown, some_rows

HERE = "coder_jax.report.page"  # the template, the style and the script


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
      explorer: as `neighbours.explorer_data` gives it.
      explorer_note: which terms these are.
      left_out: the parts that are not there.
    """

    title: str
    answers: Sequence[Answer] = ()
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


def render(report: Report) -> str:
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
        HERE,
        "report.html",
        "report.css",
        ["report.js"],
        report=report,
        maps=[figure for figure in (report.by_concept, report.by_type) if figure],
        panels=figures(report.panels, "panel"),
        learning=figures(report.learning, "learning"),
        given=given,
        right=report.by_classes and report.by_classes.right(),
        published=any(row.published for _, rows in report.tables for row in rows),
        spectrum=relations and panel_svg(spectrum_panel(relations), "spectrum", wide=True),
        heat_map=drawn and heat_map_svg(drawn),
        heat_data=drawn and {"labels": drawn.labels, "values": drawn.similarity.round(3).tolist()},
    )


def figures(
    panels: Sequence[Panel], name: str
) -> list[tuple[Panel, Markup, list[tuple[int, list[str]]]]]:
    """Each panel with its picture and its numbers.

    Args:
      name: what the names of these pictures begin with, and no other's.
    """
    return [
        (panel, panel_svg(panel, f"{name}-{number}"), table_of(panel))
        for number, panel in enumerate(panels)
    ]


def write_page(report: Report, out: Path) -> int:
    """Writes the page to `out`, whole or not at all; its bytes. BadInput where that cannot be."""
    return write_html(render(report), out)
