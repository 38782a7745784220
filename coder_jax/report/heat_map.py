"""Similarities of relations in, the rectangles of a heat map out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coder_jax.report.relation_matrices import RelationFigure

CELL = 13  # pixels
LETTERS = 36  # of a name; the rest of it shows when one points at it
LETTER = 6.8  # pixels, about
LEAST_SCALE = 0.02
FAINTEST = 0.02  # opacity below which nothing is to be seen


@dataclass(frozen=True)
class HeatMap:
    """A symmetric table of cosines as rectangles, in pixels.

    Attributes:
      names: n short labels.
      labels: the n labels in full.
      scale: the cosine of the full colour: the largest between two relations, or LEAST_SCALE.
      margin: room for the names, at the left and above.
      cells: (x, y, positive, opacity) of each rectangle that is not invisible.
      values: n x n cosines, rounded.
    """

    names: list[str]
    labels: list[str]
    scale: float
    margin: int
    cells: list[tuple[int, int, bool, float]]
    values: list[list[float]]

    cell = CELL

    @property
    def size(self) -> int:
        """Width and height of the picture."""
        return self.margin + CELL * len(self.labels) + 1

    @classmethod
    def of(cls, relations: RelationFigure) -> HeatMap:
        """The heat map of relations in their order."""
        similarity = relations.similarity
        others = np.abs(similarity[~np.eye(len(similarity), dtype=bool)])
        scale = max(LEAST_SCALE, float(others.max(initial=0)))
        names = [shortened(label) for label in relations.labels]
        margin = int(LETTER * max(map(len, names))) + 10
        opacity = np.minimum(1, np.abs(similarity) / scale)
        cells = [
            (
                margin + CELL * int(column),
                margin + CELL * int(row),
                bool(similarity[row, column] > 0),
                round(float(opacity[row, column]), 2),
            )
            for row, column in np.argwhere(opacity >= FAINTEST)
        ]
        values = np.round(similarity, 3).tolist()
        return cls(names, relations.labels, scale, margin, cells, values)


def shortened(label: str) -> str:
    """A label, cut with an ellipsis if it is long."""
    return label if len(label) <= LETTERS else label[: LETTERS - 1] + "…"
