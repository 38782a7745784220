"""What relation matrices have learned: their singular values, and how alike they are.

A relation whose matrix is the identity leaves vectors as they are, and training begins there: what
it learned is the difference from the identity. So relations are chosen by the size of that
difference, and compared by the cosine between the differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from coder_jax.encoding.rows import unit
from coder_jax.report.curves import Curve, Panel, thinned_to
from data_pipeline.process import stopping

SHOWN = 48  # relations whose names can still be read beside a heat map
LEAST_SCALE = 0.02
LEAST_SQUARES = 3  # relations that a heat map tells more of than a sentence
SPECTRUM_POINTS = 96


@dataclass(frozen=True)
class RelationFigure:
    """Some relations, in an order that has alike ones side by side.

    Attributes:
      labels: n of them.
      total: how many relations there are.
      moved: float64 [n], Frobenius norm of the difference from the identity.
      spectrum: float64 [n, D], singular values, largest first.
      similarity: float64 [n, n], cosines between the differences.
    """

    labels: list[str]
    total: int
    moved: np.ndarray
    spectrum: np.ndarray
    similarity: np.ndarray

    @property
    def scale(self) -> float:
        """The cosine of a heat map's full colour: the largest between two, or LEAST_SCALE."""
        others = np.abs(self.similarity[~np.eye(len(self.similarity), dtype=bool)])
        return max(LEAST_SCALE, float(others.max(initial=0)))

    @property
    def effective_rank(self) -> np.ndarray:
        """float64 [n]: exp of the entropy of a relation's singular values; D for the identity.

        Roy and Vetterli 2007, The effective rank.
        """
        shares = self.spectrum / self.spectrum.sum(axis=1, keepdims=True)
        logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
        return np.exp(-(shares * logs).sum(axis=1))


def compare_relations(
    matrices_RDD: np.ndarray, labels: Sequence[str], *, shown: int = SHOWN
) -> RelationFigure:
    """The `shown` relations that lie furthest from the identity.

    Args:
      matrices_RDD: float [R, D, D].
      labels: R of them.
      shown: at least 1.
    """
    width = matrices_RDD.shape[-1]
    moved = np.array([np.linalg.norm(one - np.eye(width)) for one in matrices_RDD])
    chosen = np.sort(np.argsort(-moved, kind="stable")[:shown])
    differences = matrices_RDD[chosen].astype(np.float64) - np.eye(width)
    spectrum = []
    for number in chosen:
        stopping.poll()
        spectrum.append(np.linalg.svd(matrices_RDD[number].astype(np.float64), compute_uv=False))
    flat = differences.reshape(len(chosen), -1)
    similarity = cosines(flat)
    order = clustered(similarity)
    chosen = chosen[order]
    return RelationFigure(
        [labels[number] for number in chosen],
        len(labels),
        moved[chosen],
        np.array(spectrum)[order],
        similarity[np.ix_(order, order)],
    )


def spectrum_panel(relations: RelationFigure) -> Panel:
    """Singular values over their rank, a curve for each relation."""
    ranks = thinned_to(SPECTRUM_POINTS, relations.spectrum.shape[1])
    curves = [
        Curve(label, (ranks + 1).tolist(), values[ranks].tolist())
        for label, values in zip(relations.labels, relations.spectrum, strict=True)
    ]
    reach = 1, relations.spectrum.shape[1]
    return Panel("Singular values", "", "rank", reach, curves, many=True, from_zero=False)


def cosines(rows_NM: np.ndarray) -> np.ndarray:
    """Cosines of all pairs of rows, [N, N]; 0 with a row of zeros."""
    unit_NM = unit(rows_NM, "relations", rows_NM.dtype)
    return np.clip(unit_NM @ unit_NM.T, -1, 1)


def clustered(similarity: np.ndarray) -> np.ndarray:
    """An order of n things with alike ones side by side: the leaves of average-linkage clusters.

    Args:
      similarity: [n, n], symmetric, in [-1, 1].
    """
    if len(similarity) < 3:
        return np.arange(len(similarity))
    distance = squareform(1 - similarity, checks=False)
    return leaves_list(linkage(distance, "average", optimal_ordering=True))
