"""The page of a leaderboard, as one HTML file."""

from __future__ import annotations

from typing import Any

import msgspec

from coder_jax.evaluation.benchmarks import published_for
from coder_jax.evaluation.leaderboard import (
    Board,
    BoardRow,
    difference_in_words,
    millions,
    side_of,
)
from coder_jax.evaluation.results import half
from coder_jax.export.model_card import LANGUAGES
from coder_jax.report.page import fill

_HERE = "board"  # the folder of the template, the style and the script


def board_page(board: Board) -> str:
    """The page: a table that sorts, a picture of size, speed and score, what cells were made by.

    All times are in one place, the script element `times`; the rest of the page is the same for the
    same cells.
    """
    names = {one.name: LANGUAGES.get(one.language, [one.language])[0] for one in board.sets}
    return fill(
        _HERE,
        "board.html",
        "board.css",
        ["board.js"],
        board=board,
        languages=names,
        choices=list(dict.fromkeys(name for name in names.values() if name)),
        shown=[_shown(board, row) for row in board.rows],
        times={row.model.name: msgspec.to_builtins(row.speed) for row in board.rows if row.speed},
        points=[_points(row) for row in board.rows],
        published=[row for one in board.sets for row in published_for(one.name)],
    )


def _shown(board: Board, row: BoardRow) -> dict[str, Any]:
    """The cells of a row as text."""
    cells: list[dict[str, Any]] = []
    for one in board.sets:
        cell, test = row.cells.get(one.name), row.differences.get(one.name)
        if cell is None or cell.value is None:
            cells.append({"value": None})
            continue
        cells.append(
            {
                "value": cell.value,
                "text": f"{cell.value:.1f}",
                "sure": half(cell.interval, 1, 1),
                "best": cell.value == board.best[one.name],
                "test": difference_in_words(test) if test else "",
                "side": side_of(test),
                "title": f"{cell.score}; hash {cell.key[:16]}",
            }
        )
    model = row.model
    first = next(iter(row.cells.values()))
    how = [f"pooling {first.record.encoder.pooling}"]
    how += [f"prompt {first.prompt!r}"] if first.prompt else []
    how += [f"by {model.backend}"] if model.backend != "jax" else []
    return {
        "name": model.name,
        "id": model.model,
        "how": ", ".join(how),
        "licence": model.licence,
        "parameters": row.parameters,
        "millions": millions(row.parameters),
        "mean": row.mean,
        "cells": cells,
        "is_base": model.name == board.compared_to,
    }


def _points(row: BoardRow) -> dict[str, Any]:
    """What the picture draws of a row."""
    values = {name: cell.value for name, cell in row.cells.items() if cell.value is not None}
    return {"name": row.model.name, "parameters": row.parameters, "mean": row.mean} | {
        "values": values
    }
