"""The files in results/: one row of figures for each setting."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_pipeline.files.whole import write_json


def read_figures(path: Path) -> list[dict[str, Any]]:
    """The existing rows; none if there is no file."""
    return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []


def keep_rows(
    path: Path, rows: Sequence[dict[str, Any]], settings: Sequence[str], **beside: Any
) -> None:
    """Adds rows to a file; rows with the same settings are replaced.

    Args:
        path: the file; it and its folder are made if need be.
        rows: new ones.
        settings: the names of what tells rows apart; a file's older rows may lack some.
        beside: what stands beside the rows, for all of them.
    """
    new = [[row[name] for name in settings] for row in rows]
    there = [row for row in read_figures(path) if [row.get(name) for name in settings] not in new]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {**beside, "rows": [*there, *rows]})
