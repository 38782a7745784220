"""A file of panels of curves, by which an experiment hands what it found to a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coder_jax.report.curves import Panel
from data_pipeline.files.json_files import read_json, typed
from data_pipeline.files.whole_files import write_json
from data_pipeline.process.errors import BadInput

FORMAT = 1
REMEDY = "write it again with `python -m launch.ablation --steps 250 1000` and the same --out"


def write_panels(panels: Sequence[Panel], path: Path) -> None:
    """The panels as JSON, whole or not at all."""
    write_json(path, {"format": FORMAT, "panels": [dataclasses.asdict(one) for one in panels]})


def read_panels(path: str | Path) -> list[Panel]:
    """The panels of a file of `write_panels`.

    Raises:
      BadInput: it is not one, or has a curve that cannot be drawn.
    """
    found = typed(read_json(Path(path)), dict[str, Any], str(path), REMEDY)
    if found.get("format") != FORMAT:
        raise BadInput(f"{path}: found the format {found.get('format')!r}, not {FORMAT}; {REMEDY}")
    panels = typed(found.get("panels"), list[Panel], str(path), REMEDY)
    for panel in panels:
        for curve in panel.curves:
            rising = all(a < b for a, b in zip(curve.x, curve.x[1:], strict=False))
            if not curve.x or len(curve.x) != len(curve.y) or not rising:
                raise BadInput(
                    f"{path}: the curve {curve.name!r} of {panel.title!r} has {len(curve.x)} x and "
                    f"{len(curve.y)} y; expected as many of both, x rising; {REMEDY}"
                )
            if len(curve.errors) not in (0, len(curve.y)) or min(curve.errors, default=0) < 0:
                raise BadInput(
                    f"{path}: the curve {curve.name!r} of {panel.title!r} has {len(curve.y)} y and "
                    f"{len(curve.errors)} errors, the least {min(curve.errors):g}; expected none, "
                    f"or one of each y, 0 or more; {REMEDY}"
                )
        least = min((curve.x[0] for curve in panel.curves), default=0)
        if not panel.curves or (panel.log_x and least <= 0):
            raise BadInput(
                f"{path}: the panel {panel.title!r} has {len(panel.curves)} curves, the least x is "
                f"{least}; expected some, and on a logarithmic axis x above 0; {REMEDY}"
            )
    if not panels:
        raise BadInput(f"{path}: has no panel of curves; {REMEDY}")
    return panels
