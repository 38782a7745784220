"""A file of panels of curves, by which an experiment hands what it found to a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coder_jax.report.curves import Curve, Panel, is_number
from data_pipeline.files.json_files import read_json
from data_pipeline.files.whole_files import write_json
from data_pipeline.process.errors import BadInput

FORMAT = 1


def write_panels(panels: Sequence[Panel], path: Path) -> None:
    """The panels as JSON, whole or not at all."""
    write_json(path, {"format": FORMAT, "panels": [dataclasses.asdict(one) for one in panels]})


def read_panels(path: str | Path) -> list[Panel]:
    """The panels of a file of `write_panels`.

    Raises:
      BadInput: it is not one.
    """
    found = read_json(Path(path))
    try:
        if found["format"] != FORMAT:
            raise BadInput(f"{path}: found the format {found['format']!r}, expected {FORMAT}")
        return [panel_of(one) for one in found["panels"]]
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(
            f"{path}: found no panels of curves ({type(error).__name__}: {error}); expected the "
            "curves.json that `python -m launch.ablation --steps 250 1000` writes"
        ) from error


def panel_of(one: dict[str, Any]) -> Panel:
    """A panel as `write_panels` has it; ValueError if its curves cannot be drawn."""
    curves = [Curve(**curve) for curve in one["curves"]]
    for curve in curves:
        if not curve.x or len(curve.x) != len(curve.y) or not all(map(is_number, curve.y)):
            raise ValueError(f"a curve of {len(curve.x)} x and {len(curve.y)} y, or not of numbers")
    if not curves:
        raise ValueError("a panel without curves")
    first, last = one["x_range"]
    return Panel(**one | {"curves": curves, "x_range": (first, last)})
